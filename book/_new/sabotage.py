"""False worlds for __ID__."""

import torch
from false_worlds import sabotage
from samefn.claims.__PART__ import __NAME__

# TODO: your false worlds.  Each names the evidence that must raise ClaimFailed in it.


@sabotage("__ID__", "ReLU has the slope 2", "odd_part")
def steep(world):
    expression = __NAME__.get("relu").expression
    world.activation("relu", expression=lambda z: 2 * expression(z))


@sabotage("__ID__", "z³ added to ReLU, so that the odd part is no line", "witness", "real_weights")
def curved(world):
    world.activation("relu", function=lambda z: torch.relu(z) + z**3)


@sabotage("__ID__", "turning forgets the first unit", "witness", "real_weights")
def forgetful(world):
    turned = __NAME__._turned
    world.replace(turned, lambda block, units: turned(block, units[1:]))


@sabotage("__ID__", "turning negates columns too", "witness", "real_weights")
def columns_too(world):
    turned = __NAME__._turned

    def both(block, units):
        other = turned(block, units)
        down = block.down.detach().clone()
        down[:, list(units)] *= -1
        return __NAME__.MLP(other.up, down, other.activation)

    world.replace(turned, both)
