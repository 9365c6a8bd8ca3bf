"""The checker of an exercise as its page has it, with what it needs of the page and nothing else."""

import ast
import symtable
import sys
from pathlib import Path
from types import SimpleNamespace

from IPython.core.inputtransformer2 import TransformerManager
from myst_nb.core.read import read_myst_markdown_notebook

BOOK = Path(__file__).resolve().parents[2] / "book"


def checker(page, name="grade"):
    """The names that ``page`` (as ``skip/relu``) has when its function ``name`` is defined: ``.grade`` and
    all that it needs.
    """
    notebook = read_myst_markdown_notebook((BOOK / f"{page}.md").read_text("utf8"))
    source = "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    source = TransformerManager().transform_cell(source)  # %magics
    namespace = {"__name__": f"checker_of_{page.replace('/', '_')}"}
    sys.modules[namespace["__name__"]] = SimpleNamespace(__dict__=namespace)  # dataclasses look there
    tree = ast.Module(_needed(ast.parse(source).body, name), [])
    exec(compile(tree, f"book/{page}.md", "exec"), namespace)
    return SimpleNamespace(**namespace)


def _needed(statements, name):
    """The statements, in order, on which the last definition of ``name`` depends."""
    names, kept = {name}, []
    for statement in reversed(statements):
        table = symtable.symtable(ast.unparse(statement), "cell", "exec")
        assigned = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
        if (assigned | _filled(statement)) & names:
            if not isinstance(statement, ast.AugAssign):
                names -= assigned
            names |= _used(table)
            kept.append(statement)
    return kept[::-1]


def _used(table):
    top = table.get_type() == "module"
    names = {s.get_name() for s in table.get_symbols() if (s.is_referenced() if top else s.is_global())}
    return names.union(*map(_used, table.get_children()))


def _filled(statement):
    """The names of what a statement changes in place."""
    places = [n for n in ast.walk(statement) if isinstance(n, (ast.Subscript, ast.Attribute))]
    filled = [ast.walk(place.value) for place in places if isinstance(place.ctx, ast.Store)]
    return {node.id for nodes in filled for node in nodes if isinstance(node, ast.Name)}
