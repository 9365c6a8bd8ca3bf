"""Serve MathJax, RequireJS and the Jupyter widget manager from the site itself.

They come from ``book/_browser/package-lock.json`` through npm.  Without npm, the pages name the CDN.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from sphinx.util import logging

logger = logging.getLogger(__name__)

MATHJAX = "mathjax/es5/tex-chtml.js"
FOLDER = "book/_browser"  # package.json, its lock, and node_modules when they are installed
MANAGER = "@jupyter-widgets/html-manager/dist"
# What pages load, and what MathJax and the widget manager may load later by a path relative to themselves.
COPIES = [
    *(
        f"mathjax/es5/{part}"
        for part in ("tex-chtml.js", "input/tex/extensions", "output/chtml/fonts", "a11y", "sre")
    ),
    "requirejs/require.js",
    f"{MANAGER}/embed-amd.js",
    *(f"{MANAGER}/*.{suffix}" for suffix in ("woff", "woff2", "ttf")),
]
# RequireJS looks under _static/ of the site, whatever the page's folder; so do the widget manager's fonts and
# its "CDN".  The manager asks MathJax 2's queue to set the labels of its widgets: hand that to MathJax 3.
BRIDGE = """\
window.require = {baseUrl: document.documentElement.dataset.content_root + "_static/"};
document.addEventListener("DOMContentLoaded", () => {
  if (window.MathJax?.startup) MathJax.Hub = {
    Queue: ([, , element]) => MathJax.startup.promise.then(() => MathJax.typesetPromise([element])),
  };
});"""


def install(root):
    """Folder of the installed browser libraries, or None where npm is missing or fails."""
    folder = Path(root, FOLDER)
    lock, modules = folder / "package-lock.json", folder / "node_modules"
    stamp = modules / ".installed-lock.json"
    if not lock.exists():
        return None
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return modules
    npm = shutil.which("npm") or shutil.which("npm", path=str(Path(sys.executable).parent))
    if npm is None:
        return None
    logger.info("installing the browser libraries of %s", lock)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    run = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if run.returncode:
        logger.info("npm failed: %s", run.stderr.strip())
        return None
    shutil.copyfile(lock, stamp)
    return modules


def choose_source(app, config):
    if install(Path(app.srcdir)) is None:
        logger.info("browser libraries: no npm here, pages will load them from a CDN")
        return
    config.mathjax_path = MATHJAX
    config.nb_ipywidgets_js = {
        "requirejs/require.js": {},
        f"{MANAGER}/embed-amd.js": {"data-jupyter-widgets-cdn": "./"},
    }
    app.add_js_file(None, body=BRIDGE)


def copy(app, exception):
    if exception or app.config.mathjax_path != MATHJAX or app.builder.format != "html":
        return
    modules = Path(app.srcdir, FOLDER, "node_modules")
    for pattern in COPIES:
        for source in modules.glob(pattern):
            target = Path(app.outdir, "_static", source.relative_to(modules))
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(source, target, dirs_exist_ok=True)
            else:
                shutil.copy2(source, target)


def write_front_door(app, exception):
    """The redirect at the site's address; it names an icon, or browsers would ask the host for one."""
    if not exception and app.builder.format == "html":
        first, icon = app.config.root_doc, Path(app.config.html_favicon).name
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><title>{app.config.html_title}</title><link rel="icon" href="_static/{icon}">'
            f'<meta http-equiv="refresh" content="0; url={first}.html">\n'
        )


def setup(app):
    app.connect("config-inited", choose_source)
    app.connect("build-finished", copy)
    # before Sphinx External ToC, which writes one if there is none
    app.connect("build-finished", write_front_door, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
