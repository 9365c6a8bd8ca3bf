"""What stands around the pages: the site's address, its map for search engines, cards, footer, 404 page."""

import subprocess
from pathlib import Path

import yaml
from sphinx.util import logging

from book_launch import BRANCH, place

logger = logging.getLogger(__name__)


def commit(root):
    """Hash of the commit that is built, a plus for changes since; empty without git."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=7", "--match=nothing"]
    try:
        run = subprocess.run(command, cwd=root, capture_output=True, text=True)
    except OSError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def name_the_site(app, config):
    """The repository's address stands in _config.yml alone; all other addresses follow from it."""
    organisation, repository, site = place(config)
    config.html_baseurl = config.ogp_site_url = site
    config.ogp_site_name = config.html_title
    config.notfound_urls_prefix = f"/{repository}/"
    colab = f"https://colab.research.google.com/github/{organisation}/{repository}/blob/{BRANCH}"
    binder = f"https://mybinder.org/v2/gh/{organisation}/{repository}/{BRANCH}?urlpath=lab/tree"
    config.myst_url_schemes = dict.fromkeys(("http", "https", "mailto")) | {
        "colab": colab + "/{{path}}.ipynb",
        "binder": binder + "/{{path}}.ipynb",
        "repository": config.html_theme_options["repository_url"] + "/{{path}}?{{query}}",
    }
    citation = Path(app.srcdir, "CITATION.cff")
    if not citation.exists():
        return
    facts = yaml.safe_load(citation.read_text("utf8"))
    version, built = f"Version {facts['version']}", commit(app.srcdir)
    source = f"{config.html_theme_options['repository_url']}/tree/{built.rstrip('+')}"
    link = f', commit <a href="{source}">{built}</a>' if built else ""
    config.html_theme_options["extra_footer"] += f"<p>{version}{link}.</p>"


def setup(app):
    # after Jupyter Book has read _config.yml, before the extensions that use the address
    app.connect("config-inited", name_the_site, priority=100)
    for extension in ("sphinx_sitemap", "sphinxext.opengraph", "notfound.extension"):
        app.setup_extension(extension)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
