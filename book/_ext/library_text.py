"""What the library offers and says of itself, for the reference and for the test of its examples."""

import inspect
import re
from pathlib import Path

# In a docstring: code, formulas with bars and stars, which are no markup, and what is.
MARKUP = re.compile(r"(``.*?``|`.*?`|(?<![\w*])\*(?=\S)[^*\n]*[^\s*]\*(?![\w*])|^\s*\* )", re.S | re.M)
MEANT = re.compile(r"[|*]|(?<=\w)_(?!\w)")
SENTENCE = re.compile(r"(?<=[.:])\s+(?=[A-Z`*])")
MODULES = re.compile(r"^\.\. automodule:: (\S+)$", re.M)


def modules(folder):
    """The modules that the pages in this folder document."""
    return [
        name for page in sorted(Path(folder).glob("*.md")) for name in MODULES.findall(page.read_text("utf8"))
    ]


def public(module):
    """Names of the functions and classes that a module offers: ``__all__``, else all that it defines."""
    names = getattr(module, "__all__", None) or [
        name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__
    ]
    return [name for name in names if name[0] != "_" and _is_documented(getattr(module, name))]


def _is_documented(thing):
    return inspect.isclass(thing) or inspect.isroutine(inspect.unwrap(thing))


def example(text):
    """A docstring in two parts: its prose, and the example at its end, which begins with >>>."""
    prose, *rest = re.split(r"(?m)^(?=>>> )", inspect.cleandoc(text or ""), maxsplit=1)
    return prose.rstrip(), "".join(rest)


def summary(thing):
    """The first sentence of a docstring."""
    paragraph = example(thing.__doc__)[0].split("\n\n")[0].replace("\n", " ")
    return SENTENCE.split(paragraph)[0].rstrip(":")


def escape(text):
    """Plain text as reStructuredText: bars, lone stars and trailing underscores mean themselves."""
    parts = MARKUP.split(text)
    return "".join(part if i % 2 else MEANT.sub(lambda m: "\\" + m[0], part) for i, part in enumerate(parts))
