"""Formulas are set when the book is built, by KaTeX: a page needs no script for them.

sphinxcontrib-katex runs the one process that sets them.  Here: the macros of ``_config.yml``, errors with
their place in the source, and formulas without macros for readers' notebooks.
"""

import contextlib
import re
import socket
import time
from types import SimpleNamespace

from docutils import nodes
from sphinx.util import logging
from sphinxcontrib import katex

from book_browser import program

logger = logging.getLogger(__name__)

NAME = re.compile(r"\\([A-Za-z]+)\s*")


def expand(tex, macros):
    """TeX with the macros replaced by what they stand for, which every reader of notebooks can set."""
    parts, position = [], 0
    while match := NAME.search(tex, position):
        parts.append(tex[position : match.start()])
        position = match.end()
        if match[1] not in macros:
            parts.append(match[0])
            continue
        value = macros[match[1]]
        body, count = value if isinstance(value, list) else (value, 0)
        for index in range(1, count + 1):
            end = _end_of_argument(tex, position)
            body = body.replace(f"#{index}", expand(_content(tex[position:end].strip()), macros))
            position = end
        # a name must not run into the letters that follow
        parts.append(
            body
            + (" " if re.search(r"\\[A-Za-z]+$", body) and tex[position : position + 1].isalpha() else "")
        )
    return "".join(parts) + tex[position:]


def _end_of_argument(tex, start):
    """Where a macro's argument ends: a braced group, a command or one character."""
    start += len(tex[start:]) - len(tex[start:].lstrip())
    if command := re.compile(r"\\(?:[A-Za-z]+|.)").match(tex, start):
        return command.end()
    depth = 0
    for position in range(start, len(tex)):
        escaped = tex[position - 1] == "\\"
        depth += (tex[position] == "{" and not escaped) - (tex[position] == "}" and not escaped)
        if depth == 0:
            return position + 1
    raise ValueError(f"a macro's argument has no end in {tex!r}")


def _content(argument):
    return argument[1:-1] if argument.startswith("{") else argument


class Patient(socket.socket):
    """A socket that waits for its other end: the file of a socket is there before the process listens.

    (A port would do, too, but costs 40 ms for each formula.)
    """

    def connect(self, address):
        for _ in range(500):
            with contextlib.suppress(ConnectionRefusedError):
                return super().connect(address)
            time.sleep(0.01)
        return super().connect(address)


def use_macros(app, config):
    katex.NODEJS_BINARY = program("node") or "node"
    katex.socket = SimpleNamespace(**vars(socket) | {"socket": Patient})
    bodies = {f"\\{k}": v[0] if isinstance(v, list) else v for k, v in config.book_macros.items()}
    katex.KATEX_DEFAULT_OPTIONS.update(throwOnError=True, strict="error", macros=bodies)


def with_place(visit):
    """A visitor whose failures are warnings that name the source line, as Sphinx has them."""

    def visitor(self, node):
        try:
            visit(self, node)
        except katex.KaTeXError as error:
            logger.warning("KaTeX: %s", error, location=node)
            raise nodes.SkipNode from None

    return visitor


def setup(app):
    app.setup_extension("sphinxcontrib.katex")
    app.add_config_value("book_macros", {}, "env")
    inline, display = (with_place(v) for v in (katex.html_visit_math, katex.html_visit_displaymath))
    app.add_html_math_renderer("prerendered", (inline, None), (display, None))
    app.connect("config-inited", use_macros)
    return {"parallel_read_safe": True, "parallel_write_safe": False}
