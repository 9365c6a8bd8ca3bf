"""Values that a chapter's prose shows: the role ``{glue:text}`` of MyST-NB, without MyST-NB in the kernel."""

from __future__ import annotations

from IPython.core.formatters import format_display_data
from IPython.display import display as show

PREFIX = "application/papermill.record/"  # no front end draws these, MyST-NB collects them


def glue(name: str, value: object, display: bool = True) -> None:
    """Hand ``value`` to the page under ``name``; with ``display`` false the cell shows nothing of it.

    What is kept is what a notebook would show of the value, in each of its formats.  Written in the
    form of the package scrapbook, which MyST-NB reads.
    """
    bundle, metadata = format_display_data(value)
    prefix = "" if display else PREFIX
    metadata["scrapbook"] = {"name": name, "mime_prefix": prefix}
    show({prefix + kind: data for kind, data in bundle.items()}, raw=True, metadata=metadata)
