"""Pictures as pages want them: a narrow one for telephones, and sliders as a range input over image files.

A chapter's cells hand both widths and all frames to the page (``samefn.pages.figures``); MyST-NB writes the
first one.  Here the others become files, which are loaded when they are needed.
"""

import base64
import hashlib
import json
import re
import struct
from html import escape
from pathlib import Path

from jupyter_cache import get_cache

from book_execution import read_notebook

PICTURES = "application/vnd.samefn.pictures+json"
COLUMN = 684 / 7  # pixels of the page for one inch of a figure
PHONE = "(max-width: 500px)"
IMAGE = re.compile(r'<img [^>]*?src="([^"]*_images/)([0-9a-f]{64})\.png"[^>]*?/?>')


def pictures(app, pagename):
    """What the page's cells said of their pictures, by the hash that MyST-NB gives the first one's file."""
    if "kernelspec" not in app.env.metadata[pagename]:
        return {}
    cache = get_cache(app.config.nb_execution_cache_path)
    try:
        record = cache.match_cache_notebook(read_notebook(app.env, pagename))
    except KeyError:  # another page than the one that is built alone
        return {}
    found = {}
    for cell in cache.get_cache_bundle(record.pk).nb.cells:
        for output in cell.get("outputs", ()):
            for kind, content in output.get("data", {}).items():
                if kind.endswith(PICTURES):  # glued values have a prefix
                    first = content["frames"][content.get("start", 0)]["wide"]["png"]
                    found[digest(base64.b64decode(first))] = content
    return found


def digest(data):
    return hashlib.sha256(data).hexdigest()


def store(folder, picture):
    """Write one picture; return its file name, size on the page and smallest letters in pixels there."""
    data = base64.b64decode(picture["png"])
    name = f"{digest(data)}.png"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    width, height = struct.unpack(">II", data[16:24])
    scale = picture["inches"] * COLUMN / width
    letters = (picture["points"] or 72) / 72 * COLUMN
    return name, round(width * scale), round(height * scale), letters


def sizes(width, height, letters):
    return f'width="{width}" height="{height}" data-letters="{letters:.2f}"'


def draw(image, prefix, folder, content, loading):
    """HTML of a picture in two widths; of a slider, with the names of its other pictures."""
    frames = [
        (store(folder, frame["wide"]), store(folder, frame["narrow"]), frame) for frame in content["frames"]
    ]
    start = content.get("start", 0)
    (_, *wide), (narrow, *small), first = frames[start]
    tag = re.sub(r'\s(?:width|height|style)="[^"]*"', "", image)
    if "alt" in first:
        tag = re.sub(r'\salt="[^"]*"', "", tag).replace(
            "<img", f'<img alt="{escape(first["alt"], quote=True)}"', 1
        )
    tag = tag.replace("<img", f"<img {sizes(*wide)} {loading}", 1)
    source = f'<source media="{PHONE}" srcset="{prefix}{narrow}" {sizes(*small)}>'
    drawing = f'<picture style="--inches: {wide[0] / COLUMN:.2f}">{source}{tag}</picture>'
    if len(frames) == 1:
        return drawing
    label = escape(content["label"])
    names = [
        {"wide": f"{prefix}{w[0]}", "narrow": f"{prefix}{n[0]}", "alt": f["alt"], "value": f["value"]}
        for w, n, f in frames
    ]
    data = escape(json.dumps(names), quote=True)
    value = escape(first["value"], quote=True)
    return (
        f'<span class="frame-slider" data-frames="{data}"><label class="frame-control" hidden>'
        f'<span>{label}</span><input type="range" min="0" max="{len(frames) - 1}" value="{start}" step="1" '
        f'autocomplete="off" aria-label="{escape(content["label"], quote=True)}" aria-valuetext="{value}">'
        f"<output>{escape(first['value'])}</output></label>{drawing}</span>"
    )


def place_pictures(app, pagename, templatename, context, doctree):
    if app.builder.format != "html" or doctree is None:
        return
    known, folder = pictures(app, pagename), Path(app.outdir, "_images")
    loading = iter([""])  # the first picture comes with the page, the others when they are near

    def replace(match):
        if match[2] not in known:
            return match[0]
        return draw(match[0], match[1], folder, known[match[2]], next(loading, 'loading="lazy"'))

    context["body"] = IMAGE.sub(replace, context["body"])


def setup(app):
    app.connect("html-page-context", place_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
