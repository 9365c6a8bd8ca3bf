"""Run the chapters before Sphinx reads them: side by side, with progress, cached on all that can change a result.

MyST-NB would run them one after the other and keep an old output when only the library changed. This extension
fills MyST-NB's own cache first, with its reader and its executor, so that reading the pages executes nothing.
"""

import hashlib
import os
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import metadata, util
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
from myst_nb.core.read import create_nb_reader
from nbclient.exceptions import DeadKernelError
from sphinx.errors import SphinxError
from sphinx.util import logging

logger = logging.getLogger(__name__)


class ChapterError(SphinxError):
    category = "Chapter failed"


def environment_key(library):
    """Hash of the interpreter, the installed versions and every file of the library."""
    digest = hashlib.sha256(sys.version.encode())
    for pin in sorted({f"{d.name}=={d.version}" for d in metadata.distributions()}):
        digest.update(pin.encode())
    for path in sorted(p for p in library.rglob("*") if p.is_file()):
        if not {"__pycache__"} & set(path.parts) and ".egg-info" not in str(path):
            digest.update(str(path.relative_to(library)).encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def set_cache_path(app, config):
    """MyST-NB's cache knows only the source of a chapter, so its folder carries the rest; a new folder re-reads all."""
    folder = Path(app.outdir).parent / ".jupyter_cache"
    current = folder / environment_key(Path(app.srcdir) / "lib")
    config.nb_execution_cache_path = str(current)
    for stale in folder.glob("*"):
        if stale != current:
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink()


def read_notebook(env, docname):
    path = env.doc2path(docname)
    text = Path(path).read_text("utf8")
    reader = create_nb_reader(path, env.myst_config, env.mystnb_config, text)
    return reader and reader.read(text)


def execute(env, docname, notebook):
    """Run one chapter in place; return (seconds, None) or (seconds, description of the failure)."""
    logger.info("chapter %s: running", docname)
    begun = []  # positions of the cells that were started; a dead kernel leaves no other trace of where it died
    try:
        result = single_nb_execution(
            notebook,
            cwd=str(Path(env.doc2path(docname)).parent),
            timeout=env.mystnb_config.execution_timeout,
            allow_errors=False,
            extra_arguments=["--log-level=ERROR"],  # a kernel's remarks about its sockets are not the reader's concern
            on_cell_execute=lambda cell, cell_index: begun.append(cell_index),
        )
        seconds, error = result.time, result.err
    except DeadKernelError as dead:
        seconds, error = 0.0, dead
    if error is None:
        return seconds, None
    where = "before the first cell"
    if begun:
        number = sum(cell.cell_type == "code" for cell in notebook.cells[: begun[-1] + 1])
        where = f"code cell {number} ({notebook.cells[begun[-1]].source.lstrip().splitlines()[0]})"
    detail = str(error).strip()
    summary = f"{error.ename}: {error.evalue}" if hasattr(error, "ename") else detail
    return seconds, f"{docname}, {where}: {summary}\n{detail}"


def run_chapters(app, env, docnames):
    config = env.mystnb_config
    if config.execution_mode != "cache":
        return
    cache = get_cache(config.execution_cache_path)
    waiting = {}
    for docname in sorted(docnames):
        notebook = read_notebook(env, docname)
        if notebook is None:
            continue
        try:
            cache.match_cache_notebook(notebook)
            logger.info("chapter %s: cached", docname)
        except KeyError:
            waiting[docname] = notebook
    if not waiting:
        return
    if util.find_spec("matplotlib"):
        import matplotlib.font_manager  # noqa: F401  builds the font cache now: else the first chapter prints a warning
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # one chapter a core: more threads would only fight
    failures = []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()) as pool:
        runs = {pool.submit(execute, env, name, notebook): name for name, notebook in waiting.items()}
        for run in as_completed(runs):
            name = runs[run]
            seconds, failure = run.result()
            logger.info("chapter %s: %s after %.1f s", name, "FAILED" if failure else "done", seconds)
            if failure:
                failures.append(failure)
                continue
            bundle = CacheBundleIn(waiting[name], env.doc2path(name), data={"execution_seconds": seconds})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    if failures:
        raise ChapterError("\n\n".join(failures))


def setup(app):
    app.connect("config-inited", set_cache_path)
    app.connect("env-before-read-docs", run_chapters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
