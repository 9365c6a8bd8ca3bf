"""__ID__: turning units round changes a ReLU block by a linear map.  Chapter ``__PART__/__NAME__``."""

from __future__ import annotations

import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import MLP
from .. import Claim, require

# TODO: your statement, its source, its hypotheses, and the ids of the claims that it needs.
claim = Claim(
    id="__ID__",
    title="Turning units round changes a ReLU block by a linear map",
    source="the template",
    hypotheses=("σ is ReLU",),
    uses=(),
    chapter="__PART__/__NAME__",
)


def _turned(block: MLP, units: tuple[int, ...]) -> MLP:
    """The block with the rows of these units negated."""
    sign = torch.ones(block.width)
    sign[list(units)] = -1
    return MLP(sign[:, None] * block.up, block.down, block.activation)


@claim.exact("σ(z) − σ(−z) = z on either side of zero")
def odd_part() -> str:
    relu, z = get("relu").expression, sympy.Symbol("z", positive=True)
    difference = [sympy.simplify(relu(s) - relu(-s) - s) for s in (z, -z)]
    require(difference == [0, 0], f"σ(z) − σ(−z) − z is {difference}")
    return "difference 0 (SymPy)"


@claim.certificate("the matrix A_S U_S is the difference at every integer point, in integers")
def witness(draw: Draw) -> str:
    up, down = draw.integers(-9, 10, 5, 3), draw.integers(-9, 10, 2, 5)
    units = draw.subset(5, draw.integer(1, 5))
    matrix = down[:, list(units)] @ up[list(units)]
    block = MLP(up.double(), down.double())
    x = draw.integers(-9, 10, 200, 3)
    difference = block(x.double()) - _turned(block, units)(x.double())
    require(difference.equal((x @ matrix.T).double()), f"units {units}: the matrix is not the difference")
    return f"|S| = {len(units)}, 200 points, no rounding"


@claim.numeric("for real weights, to 1e-13 of the difference")
def real_weights(draw: Draw) -> str:
    block = MLP(draw.normal(8, 3), draw.normal(3, 8))
    units = draw.subset(8, draw.integer(1, 9))
    matrix = block.down[:, list(units)] @ block.up[list(units)]
    turned = _turned(block, units)
    error = gap(lambda x: x @ matrix.T, lambda x: block(x) - turned(x), draw.normal(200, 3))
    require(error < 1e-13, f"units {units}: relative difference {error:.1e}")
    return f"relative difference {error:.1e}"


@claim.control("σ is ReLU", "for tanh the difference does not double where its argument doubles")
def tanh(draw: Draw) -> str:
    block = MLP(draw.normal(8, 3), draw.normal(3, 8), "tanh")
    turned = _turned(block, (0, 1, 2))
    x = 3 * draw.normal(200, 3)
    error = gap(lambda x: 2 * (block(x) - turned(x)), lambda x: block(2 * x) - turned(2 * x), x)
    require(error > 0.1, f"the difference is linear to {error:.1e}")
    return f"off by {error:.0%}"
