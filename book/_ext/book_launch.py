"""Write a notebook for every page that shows code, and set the buttons on top of a page."""

from pathlib import Path
from urllib.parse import urlencode

import nbformat

from notebook_text import reader_notebook

PDF = "_static/same-function-different-weights.pdf"  # printed by pdf.py, after the site is built
BRANCH = "notebooks"  # pushed by .github/workflows/publish.yml
ISSUE_FORM = "text.yml"  # in .github/ISSUE_TEMPLATE


def place(config):
    """The repository's organisation and name, and the address of its site."""
    organisation, repository = config.html_theme_options["repository_url"].rstrip("/").split("/")[-2:]
    return organisation, repository, config.html_baseurl or f"https://{organisation}.github.io/{repository}/"


def write_notebook(app, pagename, templatename, context, doctree):
    """Sphinx has the page's numbers, references and images only when it is about to write the page."""
    if app.builder.format != "html" or doctree is None or "kernelspec" not in app.env.metadata[pagename]:
        return
    *_, site = place(app.config)
    target = Path(app.outdir, "_notebooks", f"{pagename}.ipynb")
    target.unlink(missing_ok=True)
    notebook = reader_notebook(app, pagename, doctree, site)
    if notebook is not None:
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, target)


def add_launch_buttons(app, pagename, templatename, context, doctree):
    name = f"{pagename}.ipynb"
    if app.builder.format != "html" or not Path(app.outdir, "_notebooks", name).exists():
        return
    organisation, repository, _ = place(app.config)
    binder = f"https://mybinder.org/v2/gh/{organisation}/{repository}/{BRANCH}?urlpath=lab/tree/{name}"
    colab = f"https://colab.research.google.com/github/{organisation}/{repository}/blob/{BRANCH}/{name}"
    download = context["pathto"](f"_notebooks/{name}", resource=True)
    buttons = [
        ("Binder", binder, "_static/images/logo_binder.svg"),
        ("Colab", colab, "_static/images/logo_colab.png"),
        ("Download", download, "fas fa-download"),
    ]
    group = {"type": "group", "label": "launch-buttons", "icon": "fas fa-rocket", "tooltip": "Run this page"}
    group["buttons"] = [
        {"type": "link", "text": text, "url": url, "icon": icon, "tooltip": f"Open the notebook: {text}"}
        for text, url, icon in buttons
    ]
    context["header_buttons"].insert(0, group)


def add_pdf_button(app, pagename, templatename, context, doctree):
    """A link to the published PDF: a local build may have none."""
    if app.builder.format == "html" and "header_buttons" in context:
        *_, site = place(app.config)
        button = {"type": "link", "url": f"{site}{PDF}", "icon": "fas fa-file-pdf"}
        context["header_buttons"].append(button | {"label": "pdf-button", "tooltip": "The whole book as PDF"})


def point_to_the_issue_form(app, pagename, templatename, context, doctree):
    """The theme's button opens an empty issue; ours names the page in a form."""
    for group in context.get("header_buttons", ()):
        for button in group.get("buttons", ()):
            if button.get("label") == "source-issues-button":
                repository = app.config.html_theme_options["repository_url"]
                query = urlencode({"template": ISSUE_FORM, "title": f"{pagename}: ", "page": pagename})
                button["url"] = f"{repository}/issues/new?{query}"


def setup(app):
    app.connect("html-page-context", write_notebook, priority=900)
    app.connect("html-page-context", add_launch_buttons, priority=901)  # after the theme's own buttons
    app.connect("html-page-context", add_pdf_button, priority=901)
    app.connect("html-page-context", point_to_the_issue_form, priority=901)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
