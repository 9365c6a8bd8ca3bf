"""Run the chapters before Sphinx reads them: side by side, in a reader's environment, only those that must.

MyST-NB would run them one after the other in the book's own environment, and keep an old output when only the
library changed.  This extension fills MyST-NB's own cache first, so that reading the pages executes nothing.
A chapter runs again when its code or a file of the library that it imported has changed; all of them do when
an installed version has.
"""

import hashlib
import json
import os
import shutil
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import metadata, util
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_client import AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from myst_nb.core.read import create_nb_reader
from myst_nb.sphinx_ import NbMetadataCollector
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat.v4 import new_code_cell
from sphinx.errors import SphinxError
from sphinx.util import logging
from sphinx.util.console import strip_escape_sequences

import book_reader

logger = logging.getLogger(__name__)

# Runs after the last cell of a chapter and is not kept: the files of the modules that the chapter imported.
PROBE = """\
import json, sys
print(json.dumps([getattr(m, "__dict__", {}).get("__file__") for m in [*sys.modules.values()]]))"""


class ChapterError(SphinxError):
    category = "Chapter failed"


SOURCES = "the book's text"

# What an output depends on ----------------------------------------------------------------------


def fingerprints(root):
    """Hash of each module of the library, by its file; data count with their package.

    Under SOURCES, the hash of the book's text, for pages that read chapters and problem sets to list them.
    """
    library, digests = root / "lib", defaultdict(hashlib.sha256)
    sources = [*(root / "book").glob("*/*.md"), *(root / "course" / "sets").glob("*.md")]
    for path in [root / "_toc.yml", *sorted(sources)]:
        digests[SOURCES].update(path.read_bytes())
    for path in sorted(library.rglob("*")):
        if not path.is_file() or path.parent.name == "__pycache__" or path.name.startswith("."):
            continue
        packages = [folder / "__init__.py" for folder in path.parents if library in folder.parents]
        module = path if path.suffix == ".py" else next((file for file in packages if file.exists()), None)
        if module is not None:
            digests[str(module)].update(f"{path.relative_to(module.parent)}\0".encode() + path.read_bytes())
    return {module: digest.hexdigest() for module, digest in digests.items()}


def is_current(record, library):
    """Whether the modules that a cached chapter imported are still what they were."""
    return record.data["modules"].items() <= library.items()


def tools():
    """Hash of all that turns chapters into pages: these files and the installed versions."""
    pins = sorted(f"{d.name}=={d.version}" for d in metadata.distributions())
    files = [path.read_text("utf8") for path in sorted(Path(__file__).parent.glob("*.py"))]
    return hashlib.sha256(repr([pins, files]).encode()).hexdigest()


def configure(app, config):
    """MyST-NB's cache knows only the code of a chapter, so its folder carries the environment's key."""
    folder = Path(app.srcdir, "_build", ".jupyter_cache")
    current = folder / book_reader.key()
    config.nb_execution_cache_path = str(current)
    config.book_tools = tools()
    for stale in folder.glob("*"):
        if stale != current:
            shutil.rmtree(stale)


def outdated(app, env, added, changed, removed):
    """The pages whose outputs are not the cached ones, or must be made again; Sphinx sees sources only."""
    if app.config.book_page:
        return [app.config.book_page]  # read at every call, so that its warnings come again
    library = fingerprints(Path(app.srcdir))
    records = get_cache(app.config.nb_execution_cache_path).list_cache_records()
    current = {record.created.timestamp() for record in records if is_current(record, library)}
    runs = {name: NbMetadataCollector.get_exec_data(env, name) for name in env.all_docs}
    return [name for name, run in runs.items() if run and run["mtime"] not in current]


# Running ----------------------------------------------------------------------------------------


def read_notebook(env, docname):
    path = env.doc2path(docname)
    text = Path(path).read_text("utf8")
    reader = create_nb_reader(path, env.myst_config, env.mystnb_config, text)
    return reader and reader.read(text)


def execute(notebook, folder, kernels, timeout):
    """Run a notebook in place; return the files of the modules that it imported, and its failure or None."""
    begun = []  # positions of the cells that were started: a dead kernel leaves no other trace
    notebook.cells.append(new_code_cell(PROBE))
    specifications = KernelSpecManager(kernel_dirs=[str(kernels)])
    client = NotebookClient(
        notebook,
        AsyncKernelManager(kernel_name="python3", kernel_spec_manager=specifications),
        timeout=timeout,
        store_widget_state=False,  # pages show the pictures without widgets
        record_timing=False,  # would change the metadata that the cache's key covers
        resources={"metadata": {"path": str(folder)}},
        extra_arguments=["--log-level=ERROR"],  # a kernel's remarks about its sockets concern no reader
        on_cell_execute=lambda cell, cell_index: begun.append(cell_index),
    )
    try:
        # One chapter a core: more threads would only fight.
        client.execute(cleanup_kc=True, env={"OMP_NUM_THREADS": "1", "SAMEFN_SITE": "1"} | os.environ)
        return json.loads("".join(output.text for output in notebook.cells.pop().outputs)), None
    except (CellExecutionError, TimeoutError, RuntimeError) as error:  # RuntimeError: the kernel died
        return [], describe(error, notebook.cells[: begun[-1] + 1] if begun else [])


def describe(error, begun):
    """Where and how a run failed; ``begun`` are the cells up to the one that failed."""
    where = "before the first cell"
    if begun:
        number = sum(cell.cell_type == "code" for cell in begun)
        where = f"code cell {number} ({begun[-1].source.lstrip().splitlines()[0]})"
    detail = strip_escape_sequences(str(error)).strip()
    summary = f"{error.ename}: {error.evalue}" if hasattr(error, "ename") else detail
    return f"{where}: {summary}\n{detail}"


def run_chapters(app, env, docnames):
    config = env.mystnb_config
    if config.execution_mode != "cache":
        return
    cache, library = get_cache(config.execution_cache_path), fingerprints(Path(app.srcdir))
    waiting = {}
    for docname in [app.config.book_page] if app.config.book_page else docnames:
        notebook = read_notebook(env, docname)
        if notebook is None:
            continue
        try:
            current = is_current(cache.match_cache_notebook(notebook), library)
        except KeyError:
            current = False
        if current:
            logger.info("chapter %s: cached", docname)
        else:
            waiting[docname] = notebook
    if waiting:
        run_side_by_side(waiting, app, library, cache)


def run_side_by_side(waiting, app, library, cache):
    """Run these notebooks, the longest first, and cache them; raises ChapterError if any fails."""
    log = Path(app.srcdir, "_build", "seconds.json")  # of each chapter's last run
    seconds = json.loads(log.read_text()) if log.exists() else {}
    kernels = book_reader.kernels(Path(app.srcdir))
    if util.find_spec("matplotlib"):
        # builds the font cache now: else the first chapter prints a warning
        import matplotlib.font_manager  # noqa: F401

    def run(docname):
        logger.info("chapter %s: running", docname)
        start = time.perf_counter()
        folder = Path(app.env.doc2path(docname)).parent
        files, failure = execute(waiting[docname], folder, kernels, app.config.nb_execution_timeout)
        return time.perf_counter() - start, files, failure

    failures = []
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with ThreadPoolExecutor(cores) as pool:
        order = sorted(waiting, key=lambda name: -seconds.get(name, float("inf")))
        runs = {pool.submit(run, name): name for name in order}
        for done in as_completed(runs):
            name = runs[done]
            seconds[name], files, failure = done.result()
            logger.info("chapter %s: %s after %.1f s", name, "FAILED" if failure else "done", seconds[name])
            if failure:
                failures.append(f"{name}, {failure}")
                continue
            reads = any(".read_text(" in cell.source for cell in waiting[name].cells)
            modules = {file: library[file] for file in [*files, SOURCES * reads] if file in library}
            data = {"execution_seconds": seconds[name], "modules": modules}
            bundle = CacheBundleIn(waiting[name], app.env.doc2path(name), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    log.write_text(json.dumps(seconds, indent=0))
    if failures:
        raise ChapterError("\n\n".join(failures))


def execute_one(app, docname, source):
    """Of a build of one page, the other pages are read without their outputs: they need not be current."""
    page, config = app.config.book_page, app.env.mystnb_config
    if page and config.execution_mode in ("cache", "off"):
        app.env.mystnb_config = config.copy(execution_mode="cache" if docname == page else "off")


def setup(app):
    app.add_config_value("book_page", None, "")  # set by build.py: build this page only
    app.add_config_value("book_tools", None, "env")  # read all pages again if it changes
    app.connect("config-inited", configure)
    app.connect("env-get-outdated", outdated)
    app.connect("env-before-read-docs", run_chapters)
    app.connect("source-read", execute_one)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
