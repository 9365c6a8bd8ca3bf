"""The checker of an exercise as its page has it, with what it needs of the page and nothing else."""

import ast
import sys
from pathlib import Path
from types import SimpleNamespace

from myst_nb.core.read import read_myst_markdown_notebook

BOOK = Path(__file__).resolve().parents[2] / "book"


def checker(page, name="grade"):
    """The names that ``page`` (as ``skip/relu``) has when its function ``name`` is defined: ``.grade`` and
    all that it needs.
    """
    notebook = read_myst_markdown_notebook((BOOK / f"{page}.md").read_text("utf8"))
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    namespace = {"__name__": f"checker_of_{page.replace('/', '_')}"}
    sys.modules[namespace["__name__"]] = SimpleNamespace(__dict__=namespace)  # dataclasses look there
    tree = ast.Module(_needed(ast.parse(source).body, name), [])
    exec(compile(tree, f"book/{page}.md", "exec"), namespace)
    return SimpleNamespace(**namespace)


def _needed(statements, name):
    """The statements, in order, on which the last definition of ``name`` depends."""
    last = max(i for i, s in enumerate(statements) if name in _bound(s))
    names, kept = _used(statements[last]), [statements[last]]
    for statement in reversed(statements[:last]):
        if _bound(statement) & names:
            names |= _used(statement)
            kept.append(statement)
    return kept[::-1]


def _bound(statement):
    """The names that a top-level statement defines, fills or changes in place."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    names = set()
    for node in ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names |= {inner.id for inner in ast.walk(node.value) if isinstance(inner, ast.Name)}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _used(statement):
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
