"""Units whose even parts agree, collected: one criterion for every block, redundant units or none (X-DEG).

Units whose even parts agree lie on one *line*.  Collected by lines, a block with its skip is
Rx + Σ_l e_l σ(v_l·x + b_l), one unit for each line whose even part does not cancel, and a constant.
So R, the e_l and the v_l make a criterion as A, the a_i and the u_i do; they are the same where no
unit is redundant.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..networks import MLP, GatedMLP, Residual
from .criterion import ROUNDING, Criterion, criterion_of, double


@dataclass(frozen=True)
class Collected:
    """A residual block after collecting its units by line.

    ``criterion``: R as its target, the e_l as columns of ``down``, the v_l as rows of ``up``.
    ``bias``: the b_l, 0 where the block has none.  ``spare``: how many units the collecting set free.
    ``noise``: how much of R may be rounding.
    """

    criterion: Criterion
    bias: Float[Tensor, "lines"]
    spare: int
    noise: float

    @property
    def lines(self) -> int:
        return len(self.bias)


def collect(residual: Residual) -> Collected | None:
    """The criterion of the collected block; where no unit is redundant, the block's own criterion.

    None where redundant units cannot be collected: those of a gated block, and those that leave a
    constant where no bias takes it up.  Raises as :func:`~samefn.skip.criterion.criterion_of` does.
    """
    block, own = residual.block, criterion_of(residual)
    bias, live = _up_bias(block), live_units(block)
    stands, line = _lines(block)
    if bool(live.all()) and len(stands) == block.width:
        return Collected(own, bias, 0, own.noise())
    if isinstance(block, GatedMLP) or not constants_fit(block):
        return None

    length = live.to(own.down)  # of each row, in units of the row that stands for its line
    if block.activation.degree == 1:
        norms = torch.cat([own.up, bias[:, None]], 1).norm(dim=1)
        length = torch.where(live, norms / norms[stands[line]], 0.0)
    terms = own.down * length
    even = torch.zeros_like(own.down[:, : len(stands)]).index_add_(1, line, terms)
    size = torch.zeros_like(even[0]).index_add_(0, line, terms.norm(dim=0))
    kept = even.norm(dim=0) > ROUNDING * size
    even, stands = even[:, kept], stands[kept]
    # every unit has the linear part c a u·x; R is what the kept lines' own linear parts do not account for
    rest = own.target + own.slope * own.down @ own.up - own.slope * even @ own.up[stands]
    criterion = Criterion(own.slope, even, own.up[stands], rest)
    return Collected(criterion, bias[stands], block.width - len(stands), own.noise())


def live_units(block: MLP | GatedMLP) -> Bool[Tensor, "m"]:
    """Which units have only nonzero weight vectors, so that they have an even part."""
    live = block.down.detach().any(dim=0) & block.up.detach().any(dim=1)
    return live & block.gate.detach().any(dim=1) if isinstance(block, GatedMLP) else live


def constants_fit(block: MLP) -> bool:
    """Whether a bias takes up every constant that collecting the units leaves."""
    if block.up_bias is not None:
        return block.down_bias is not None
    constant = ~block.up.detach().any(dim=1) & block.down.detach().any(dim=0)
    return not bool(constant.any()) or float(block.activation(torch.zeros((), dtype=torch.float64))) == 0


def may_depend(block: MLP) -> bool:
    """Whether units of different lines may have dependent even parts: shifted parallel hardswish units.

    Modulo affine functions six of them are dependent where their kinks pair the points 0, a, a+b, 2a+b.
    """
    if block.activation.name != "hardswish" or block.up_bias is None:
        return False
    return len(equivalent(double(block.up), "line").unique()) < block.width


def equivalent(rows: Float[Tensor, "m n"], up_to: Literal["line", "sign"]) -> Int[Tensor, "m"]:
    """For each row the index of the row that stands for its class.

    Rows are equivalent up to "line" if they are multiples of each other, up to "sign" if they are
    equal or opposite; either to ``ROUNDING`` of their length.
    """
    if up_to == "line":
        rows = rows / rows.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
    stands = torch.arange(len(rows))
    for run in _near(rows):
        found: list[int] = []  # the first of each class of this run
        for i in run:
            stands[i] = first = next((j for j in found if _same_up_to_sign(rows[i], rows[j])), i)
            if first == i:
                found.append(i)
    return stands


def _near(rows: Tensor) -> list[list[int]]:
    """The rows in runs, such that equivalent rows are in one run: most runs have one row.

    Equivalent rows have equal projections, up to sign, on any direction; so the rows are sorted by
    one projection, and cut where it jumps.
    """
    projection = (rows @ _probe(rows.shape[1]).to(rows)).abs()
    order = projection.argsort()
    # apart by more than the rows' own distance and the rounding of both projections
    jumps = projection[order].diff() > 4 * ROUNDING * rows.norm(dim=1)[order][1:]
    return [run.tolist() for run in order.cpu().tensor_split((jumps.nonzero().flatten() + 1).cpu())]


def _probe(n: int) -> Float[Tensor, "n"]:
    """A fixed unit vector without pattern, which no row of a few round numbers is orthogonal to by chance.

    The angles k² are equidistributed (Weyl); and as nothing is drawn, no verdict depends on a seed.
    """
    probe = torch.cos(torch.arange(1, n + 1, dtype=torch.float64) ** 2)
    return probe / probe.norm()


def _same_up_to_sign(row: Tensor, other: Tensor) -> bool:
    return bool(min((row - other).norm(), (row + other).norm()) <= ROUNDING * other.norm())


def _lines(block: MLP | GatedMLP) -> tuple[Int[Tensor, "lines"], Int[Tensor, "m"]]:
    """The unit that stands for each line, in the order of the units, and the line of every unit.

    Lines are lines of (u_i, b_i) for homogeneous σ, pairs ±(u_i, b_i) otherwise, and pairs of gate rows
    for gated blocks.
    """
    rows = double(block.gate if isinstance(block, GatedMLP) else block.up)
    if isinstance(block, MLP) and block.up_bias is not None:
        rows = torch.cat([rows, double(block.up_bias)[:, None]], 1)
    homogeneous = isinstance(block, MLP) and block.activation.degree == 1
    return equivalent(rows, "line" if homogeneous else "sign").unique(return_inverse=True)


def _up_bias(block: MLP | GatedMLP) -> Float[Tensor, "m"]:
    if isinstance(block, GatedMLP) or block.up_bias is None:
        return torch.zeros_like(double(block.up[:, 0]))
    return double(block.up_bias)
