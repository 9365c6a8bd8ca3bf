"""Glued values in the form that MyST-NB reads."""

import pytest
from myst_nb.ext.glue import extract_glue_data_cell
from nbformat.v4 import new_code_cell, new_output

from samefn.pages import glue


@pytest.mark.parametrize("display", [True, False])
def test_a_glued_value_is_read_by_the_page(monkeypatch, display):
    outputs = []

    def show(data, *, raw, metadata):
        assert raw
        outputs.append(new_output("display_data", data=data, metadata=metadata))

    monkeypatch.setattr(glue, "show", show)
    glue.glue("a-name", 3.25, display=display)
    cell = new_code_cell(outputs=outputs)
    ((name, output),) = extract_glue_data_cell(cell)
    assert (name, output["data"]["text/plain"]) == ("a-name", "3.25")
    assert bool(cell.outputs) is display  # what the cell still shows
