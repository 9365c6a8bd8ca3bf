"""Every name of the library's reference has an example, and the examples show what they say."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import samefn
from library_text import example, modules, public
from samefn.pretrained import WeightsUnavailable, weight_file

ROOT = Path(__file__).resolve().parents[2]
OFFERED = {
    f"{name}.{thing}": getattr(module, thing)
    for name in modules(ROOT / "book" / "api")
    for module in [importlib.import_module(name)]
    for thing in public(module)
}


def test_the_reference_has_what_readers_need_first():
    first = {getattr(samefn, name) for name in samefn.__all__ if name[0] != "_"}
    assert len(OFFERED) > 100 and first <= {*OFFERED.values()}


@pytest.mark.parametrize("name", OFFERED)
def test_an_example_shows_what_it_says(name):
    source = example(OFFERED[name].__doc__)[1]
    assert source, f"{name} has no example"
    if "(layers=1)" in source or "weight_file()" in source:
        try:
            weight_file()
        except WeightsUnavailable as error:
            pytest.skip(str(error))
    test = doctest.DocTestParser().get_doctest(source, {"torch": torch}, name, None, 0)
    said = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert not said, "".join(said)
