"""What is stated in two places agrees."""

import ast
import doctest
import re
import tomllib
from importlib import metadata

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import samefn
from shared import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))
GROUPS = PROJECT["dependency-groups"]


def pins(path):
    """The versions in a lock; one package may have several, for different machines."""
    found = {}
    for line in (ROOT / path).read_text("utf8").splitlines():
        if "==" in line and not line.startswith("#"):
            name, version = line.split(";")[0].strip().split("==")
            found.setdefault(canonicalize_name(name), set()).add(version)
    return found


@pytest.mark.parametrize(
    "lock, stated",
    [
        ("requirements.txt", PROJECT["project"]["dependencies"] + GROUPS["book"]),
        ("tests/requirements.txt", PROJECT["project"]["dependencies"] + GROUPS["test"] + GROUPS["lint"]),
    ],
)
def test_a_lock_has_a_version_that_fits_for_all_that_is_stated(lock, stated):
    pinned = pins(lock)
    for requirement in map(Requirement, stated):
        versions = pinned.get(canonicalize_name(requirement.name), ())
        assert versions, f"run `make lock`: {lock} has no {requirement.name}"
        assert all(map(requirement.specifier.contains, versions)), f"run `make lock`: {requirement}"


def test_the_locks_agree_and_bring_no_cuda():
    book, tests = pins("requirements.txt"), pins("tests/requirements.txt")
    assert {name: book[name] for name in book.keys() & tests} == {
        name: tests[name] for name in book.keys() & tests
    }
    assert not [name for name in {*book, *tests} if re.match("nvidia|cuda|triton", name)]


def test_the_version_is_one():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    assert (
        citation["version"]
        == PROJECT["project"]["version"]
        == samefn.__version__
        == metadata.version("samefn")
    )


def test_the_make_targets_that_the_texts_name_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf8"), re.M))
    for name in ("README.md", "CONTRIBUTING.md"):
        named = set(re.findall(r"`make ([a-z-]+)", (ROOT / name).read_text("utf8")))
        assert named and named <= targets, named - targets


def test_paths_that_the_texts_name_exist():
    for name in ("README.md", "CONTRIBUTING.md"):
        text = (ROOT / name).read_text("utf8")
        paths = re.findall(r"`((?:book|lib|tests|\.github|\.binder)/[\w./-]*)`", text)
        paths += re.findall(r"\]\(([\w./]+)\)", text)
        assert paths and not [path for path in paths if not (ROOT / path).exists()]


def imports(path):
    """The modules that a file of the library imports, absolute, and the names that it takes from them."""
    package = path.relative_to(ROOT / "lib").parent.parts
    for node in ast.walk(ast.parse(path.read_text("utf8"))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*above, *filter(None, [node.module])])
            yield from ((module, alias.name) for alias in node.names)


APART = {
    "skip": ("equivariance", "experiments", "pages", "claims"),
    "equivariance": ("skip", "experiments", "pages", "claims"),
    "experiments": ("pages", "claims"),
    "pages": ("skip", "equivariance", "experiments", "claims"),
}


@pytest.mark.parametrize("part", APART)
def test_the_parts_of_the_library_know_only_what_they_may(part):
    known = {
        f"{module}.{name}"
        for path in (ROOT / "lib/samefn" / part).rglob("*.py")
        for module, name in imports(path)
    }
    assert part == "pages" or any(name.startswith("samefn.networks.") for name in known)
    assert not [name for name in known if name.startswith(tuple(f"samefn.{other}." for other in APART[part]))]


def test_no_module_imports_a_name_that_another_keeps_to_itself():
    for path in (ROOT / "lib").rglob("*.py"):
        taken = [(module, name) for module, name in imports(path) if module.startswith("samefn")]
        assert not [name for _, name in taken if name.startswith("_")], path


def test_the_example_of_the_readme_shows_what_it_says():
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf8"), re.M | re.S)
    statements, *shown = re.split(r"^(.*\S) +# (.*)\n", example, flags=re.M)
    assert len(shown) == 6
    scope = {}
    exec(statements, scope)
    for expression, comment, then in zip(*[iter(shown)] * 3):
        assert comment.split(", with")[0] in repr(eval(expression, scope))
        exec(then, scope)


def test_the_examples_in_docstrings_show_what_they_say():
    tried = doctest.testmod(samefn)
    assert tried.attempted and not tried.failed
