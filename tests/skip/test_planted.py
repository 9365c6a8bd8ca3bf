"""Planted blocks: what ``plant`` moves, and what it refuses."""

import pytest
import torch

from samefn.networks import MLP
from samefn.skip.planted import plant

from .blocks import normal, random_block


def test_plant_refuses_what_it_cannot():
    with pytest.raises(ValueError, match="units must have rows that span"):
        plant(random_block("relu", 3, 5, 0), (0, 1))
    with pytest.raises(ValueError, match=r"units must have rows that span .* got \(\)"):
        plant(random_block("relu", 3, 5, 0), ())
    with pytest.raises(ValueError, match="no submatrix criterion"):
        plant(MLP(normal(4, 2, seed=0), normal(2, 4, seed=1), "tanh"), (0, 1))
    for unit in (-1, 5):
        with pytest.raises(ValueError, match=rf"units must lie in 0\.\.4, got \(0, {unit}\)"):
            plant(random_block("relu", 3, 5, 0), (0, unit))
    with pytest.raises(ValueError, match=r"units must not name a unit twice, got \(0, 1, 0\)"):
        plant(random_block("relu", 3, 5, 0), (0, 1, 0))
    for units in ((0, 1, 2.0), (True, False, True), torch.tensor([True, True, True, False, False])):
        with pytest.raises(TypeError, match=r"units(\[2\])? must be (an )?integer"):
            plant(random_block("relu", 3, 5, 0), units)
    with pytest.raises(TypeError, match="block must be an MLP or a GatedMLP"):
        plant(None, (0, 1, 2))


def test_planting_moves_only_the_chosen_columns():
    block = random_block("gelu", 3, 6, 0)
    change = plant(block, (0, 2, 5)).block.down - block.down
    assert [i for i in range(6) if float(change[:, i].abs().max()) > 0] == [0, 2, 5]
