"""False worlds for A-D1."""

from dataclasses import replace

import torch
import torch.nn.functional as F
from false_worlds import sabotage

from samefn.activations import get
from samefn.networks import MLP, Residual
from samefn.skip.absorption import absorb


@sabotage("A-D1", "ReLU is a smooth function", "two_slopes", "random_blocks", "all_small_units")
def relu_is_gelu(world):
    world.activation("relu", function=F.gelu, expression=get("gelu").expression)


@sabotage("A-D1", "the residual-free block that is returned is zero", "random_blocks")
def zero_network(world):
    def emptied(found):
        network = found.network and MLP(found.network.up, torch.zeros_like(found.network.down))
        return replace(found, network=network)

    world.wrap(absorb, emptied)


@sabotage("A-D1", "the slope on the left is 3 % off", "random_blocks")
def one_slope_is_off(world):
    def tilted(found):
        network = found.network and MLP(
            found.network.up, torch.where(found.network.up.T < 0, 1.03, 1.0) * found.network.down
        )
        return replace(found, network=network)

    world.wrap(absorb, tilted)


@sabotage("A-D1", "half the skip is added", "random_blocks", "all_small_units")
def half_a_skip(world):
    world.method(Residual, "forward", lambda self, x: x / 2 + self.block(x))


@sabotage("A-D1", "a single unit absorbs whatever its weights", "all_small_units")
def one_unit_absorbs(world):
    world.wrap(absorb, lambda found: replace(found, absorbed=True))


@sabotage("A-D1", "a single unit never absorbs", "all_small_units")
def one_unit_never_absorbs(world):
    world.wrap(absorb, lambda found: replace(found, absorbed=False))


@sabotage("A-D1", "repeated rows are refused", "random_blocks")
def degenerate_blocks_are_refused(world):
    def refusing(residual):
        rows = residual.block.up.flatten()
        return replace(absorb(residual), absorbed=len(rows.unique()) == len(rows))

    world.replace(absorb, refusing)
