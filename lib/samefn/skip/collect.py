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
from torch.nn.functional import pad

from ..networks import MLP, GatedMLP, Residual
from .criterion import (
    EPS,
    Criterion,
    accurate_product,
    double,
    exponents,
    ldexp,
    normalised,
    odd_slope_of,
    probe,
)

NEAR = 2.0**-40  # far above rounding: rows whose projections differ by more are not equivalent


@dataclass(frozen=True)
class Units:
    """The units of a block in float64, in the terms that all kinds share.

    Unit i adds ``down``_i times a function that bends where ``keys``_i (its row, for gated units its gate's,
    and bias) says; turned around, it changes by 2c ``down``_i (``rows``_i·x̃).  A unit that is ``constant``
    (row, or gate's row, zero) bends nowhere and adds ``down``_i (``affine``_i·x̃).  Here x̃ is (x, 1), or x
    where constants are of no account.  ``up_to`` says which keys bend alike.
    """

    down: Float[Tensor, "d m"]
    keys: Float[Tensor, "m n"]
    rows: Float[Tensor, "m k"]
    affine: Float[Tensor, "m k"]
    constant: Bool[Tensor, "m"]
    up_to: Literal["line", "sign"]

    def chosen(self, which: Bool[Tensor, "m"]) -> Units:
        parts = (self.keys[which], self.rows[which], self.affine[which], self.constant[which])
        return Units(self.down[:, which], *parts, self.up_to)

    @property
    def bending(self) -> Int[Tensor, "units"]:
        return (self.down.any(dim=0) & self.rows.any(dim=1) & ~self.constant).nonzero().flatten()

    @property
    def fixed(self) -> Int[Tensor, "units"]:
        return (self.down.any(dim=0) & self.affine.any(dim=1) & self.constant).nonzero().flatten()


def keys_of(block: MLP | GatedMLP) -> Float[Tensor, "m n"]:
    """Each unit's row, or its gate's row, and its bias, 0 where it has none."""
    weight, bias = (block.gate, block.gate_bias) if isinstance(block, GatedMLP) else (block.up, block.up_bias)
    bias = torch.zeros_like(double(weight[:, 0])) if bias is None else double(bias)
    return torch.cat([double(weight), bias[:, None]], 1)


def units_of(block: MLP | GatedMLP, constants: bool) -> Units:
    """The units of a block, with x̃ = (x, 1) if ``constants`` and otherwise x."""
    down, up, keys = double(block.down), double(block.up), keys_of(block)
    constant, value = ~keys[:, :-1].any(dim=1), block.activation(keys[:, -1:])
    if isinstance(block, GatedMLP):
        rows = pad(up, (0, int(constants)))
        return Units(down, keys, rows, value * rows, constant, "sign")
    rows, affine = (keys, pad(value, (up.shape[1], 0))) if constants else (up, torch.zeros_like(up))
    if block.activation.name == "identity":
        return Units(down, keys, rows, rows, torch.ones_like(constant), "line")
    return Units(down, keys, rows, affine, constant, "line" if block.activation.degree == 1 else "sign")


def constants_count(block: MLP | GatedMLP) -> bool:
    """Whether the criterion has to make constants vanish: they arise, and no output bias takes them up."""
    return isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None


@dataclass(frozen=True)
class Collected:
    """A residual block, in float64, after collecting its units by line.

    ``criterion``: R as its target, the e_l as columns of ``down`` (times 2c), the v_l as rows of ``up``.
    ``stands``: for each line, the unit whose row is v_l.  ``spare``: how many units the collecting set free.
    ``constant``: what one unit with zero row has to add, as there is no bias to add it, or None; that
    unit is not spare.
    """

    residual: Residual
    criterion: Criterion
    stands: Int[Tensor, "lines"]
    spare: int
    constant: Float[Tensor, "d"] | None

    @property
    def lines(self) -> int:
        return len(self.stands)


def collect(residual: Residual) -> Collected | None:
    """The collected form of a float64 block; where no unit is redundant, its criterion is the block's own.

    None where two units of a gated block share their gate: what such units can do is not known here.
    """
    block, slope = residual.block, odd_slope_of(residual.block)
    assert slope is not None
    units = units_of(block, constants_count(block))
    bending, fixed = units.bending, units.fixed
    stands, line, length = lines_of(units.keys[bending], units.up_to)
    if isinstance(block, GatedMLP) and len(stands) < len(bending):
        return None

    count, both = len(bending), torch.cat([bending, fixed])
    factors = torch.tensor([2 * slope] * count + [1.0] * len(fixed), dtype=torch.float64)
    rows = torch.cat([units.rows[bending], units.affine[fixed]])
    target = pad(double(residual.skip_matrix()), (0, rows.shape[1] - residual.dim_in))
    own = normalised(factors, units.down[:, both], rows, target)
    terms = own.down[:, :count] * ldexp(length.abs(), own.shift[stands[line]] - own.shift[:count])
    even = torch.zeros_like(terms[:, : len(stands)]).index_add_(1, line, terms)
    size = torch.zeros_like(even[0]).index_add_(0, line, terms.norm(dim=0))
    kept = even.norm(dim=0) > 2 * count * EPS * size
    even, stands = even[:, kept], stands[kept]
    # a σ(-z) = a σ(z) - 2cz a: a unit turned away from the one that stands for its line has a linear part
    linear = torch.cat([length < 0, torch.ones(len(fixed), dtype=torch.bool)])
    target = accurate_product(own.target, own.down[:, linear], own.up[linear])
    noise = own.noise + (own.rounding() if len(stands) < len(both) else 0)
    criterion = Criterion(even, own.up[stands], target, own.exponent, own.shift[stands], noise)
    constant = _needed_constant(block, units)
    spare = block.width - len(stands) - (constant is not None)
    return Collected(residual, criterion, bending[stands], spare, constant)


def _needed_constant(block: MLP | GatedMLP, units: Units) -> Float[Tensor, "d"] | None:
    """What units with zero rows add where σ(0) ≠ 0 and there are no biases: no other units add a constant."""
    if isinstance(block, GatedMLP) or block.up_bias is not None or block.down_bias is not None:
        return None
    terms = units.down[:, units.constant] * block.activation(torch.zeros((), dtype=units.down.dtype))
    total = terms.sum(1)
    return total if bool(total.norm() > 2 * terms.shape[1] * EPS * terms.norm(dim=0).sum()) else None


def may_depend(block: MLP) -> bool:
    """Whether units of different lines may have dependent even parts: shifted parallel hardswish units.

    Modulo affine functions six of them are dependent where their kinks pair the points 0, a, a+b, 2a+b.
    """
    if block.activation.name != "hardswish" or block.up_bias is None:
        return False
    return len(equivalent(double(block.up), "line").unique()) < block.width


def lines_of(
    keys: Float[Tensor, "m n"], up_to: Literal["line", "sign"]
) -> tuple[Int[Tensor, "lines"], Int[Tensor, "m"], Float[Tensor, "m"]]:
    """The row that stands for each line, in the order of the rows; the line of every row; and its length.

    The length is in units of the row that stands for the line, negative if it points the other way; ±2^k
    if the rows are such multiples of each other.
    """
    stands, line = equivalent(keys, up_to).unique(return_inverse=True)
    exponent = exponents(keys, 1)
    rows = ldexp(keys, -exponent)
    ours = stands[line]
    length = (rows * rows[ours]).sum(1) / (rows[ours] * rows[ours]).sum(1)
    return stands, line, ldexp(length, (exponent - exponent[ours])[:, 0])


def equivalent(rows: Float[Tensor, "m n"], up_to: Literal["line", "sign"]) -> Int[Tensor, "m"]:
    """For each row the index of the row that stands for its class.

    Rows are equivalent up to "sign" if they are equal or opposite, up to "line" if they are multiples of
    each other, up to the rounding of their entries.
    """
    stands, tolerance = torch.arange(len(rows)), 0.0
    if len(rows) == 0:
        return stands
    scaled = ldexp(rows, -exponents(rows.reshape(1, -1), 1))
    if up_to == "line":
        scaled = ldexp(rows, -exponents(rows, 1))
        rows = scaled = scaled / scaled.norm(dim=1, keepdim=True).clamp_min(0.5)
        tolerance = (rows.shape[1] + 8) * EPS
    for run in _near(scaled):
        found: list[int] = []  # the first of each class of this run
        for i in run:
            stands[i] = first = next((j for j in found if _alike(rows[i], rows[j], tolerance)), i)
            if first == i:
                found.append(i)
    return stands


def _near(rows: Tensor) -> list[list[int]]:
    """The rows in runs, such that equivalent rows are in one run: most runs have one row.

    Equivalent rows have equal projections, up to sign, on any direction; so the rows are sorted by
    one projection, and cut where it jumps.
    """
    projection = (rows @ probe(rows.shape[1])).abs()
    order = projection.argsort()
    jumps = projection[order].diff() > NEAR * rows.norm(dim=1)[order][1:]
    return [run.tolist() for run in order.tensor_split(jumps.nonzero().flatten() + 1)]


def _alike(row: Tensor, other: Tensor, tolerance: float) -> bool:
    """Equal up to sign, to ``tolerance``."""
    return bool(min((row - other).abs().max(), (row + other).abs().max()) <= tolerance)
