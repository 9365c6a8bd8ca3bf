"""How far two given networks differ, relative to the terms they add up: a bound for every input.

The *terms* at x are the skip Mx, each unit's a_i σ(u_i·x + b_i) and the output biases, of both networks;
their *size* τ(x) is the sum of their norms.  ``compare`` bounds ‖F(x) - F'(x)‖ by ``error`` τ(x), for the
weights as they are, whoever made them, and for every x: at every scale and in every direction.

Proof.  Units of both sides that bend alike are put on lines z = v·x̃, x̃ = (x, 1).  What a line adds to
F - F' is α σ(z) + α' σ(-z) = (α + α') σ(z) - 2c α' z; the side of larger weight ω ≥ ω' is called σ(z), the
weight being the sum of the ‖a_i‖ of that side.  The first summand is at most ρ ω |σ(z)|, which is ρ times
terms, for ρ = ‖α + α'‖ / ω.  The second ones make, with M and with units that are linear or constant, one
matrix R.  And τ(x) ≥ ‖Mx‖ + Σ ω' (|σ(z)| + |σ(-z)|) + … ≥ ‖Kx̃‖ for the matrix K with the rows of M,
2c ω' v and the like.  So error = max ρ + ‖R K⁺‖ will do, since each row of R is a combination of rows of
K: where there is no term there is no error.  R is computed as if without rounding, and ‖R K⁺‖ from a factor
C of KᵀK with ‖Cᵀx‖ ≤ ‖Kx‖ in spite of rounding (:func:`~samefn.skip.criterion.positive_factor`).  A row
that is a multiple λv only up to rounding, u = λv + δ, adds L ‖a‖ ‖δ K⁺‖, with L the Lipschitz constant of
σ; lines are of several multiples only where σ is homogeneous.

One thing is taken on trust: the constant σ(b) of a unit with zero row is what torch says it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from ..networks import MLP, GatedMLP, Residual
from .collect import Units, lines_of, units_of
from .criterion import (
    EPS,
    accurate_product,
    double,
    exact_pivots,
    exponents,
    ldexp,
    normalised,
    odd_slope_of,
    positive_factor,
)

ELIMINATED = 4000  # entries up to which columns that depend on others are looked for
DIGITS = 2.0**-40  # True comes with twelve digits in every direction, or it is not said


@dataclass(frozen=True)
class Deviation:
    """F - F' is at most ``error`` times the terms; its linear part is ``linear``, which acts on (x, 1).

    ``explained``: whether the linear part is as small as one rounding of each weight can make it.

    >>> from samefn import absorb
    >>> from samefn.skip.deviation import compare
    >>> from samefn.skip.planted import running_example
    >>> residual = running_example()
    >>> compare(residual, absorb(residual).network).negligible
    True
    """

    error: float
    linear: Float[Tensor, "d k"]
    explained: bool

    @property
    def negligible(self) -> bool:
        return self.explained and self.error <= DIGITS


@torch.no_grad()
def compare(residual: Residual, network: MLP | GatedMLP) -> Deviation:
    """The deviation of the residual block from a network of the same kind, both in float64.

    >>> from samefn.skip.deviation import compare
    >>> from samefn.skip.planted import running_example
    >>> residual = running_example()
    >>> compare(residual, residual.block).linear.tolist()  # the whole skip is left
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    """
    units, slope = _side_by_side(residual.block, network), odd_slope_of(residual.block) or 0.5
    bending, fixed = units.bending, units.fixed
    count, both = len(bending), torch.cat([bending, fixed])
    factors = torch.tensor([2 * slope] * count + [1.0] * len(fixed), dtype=torch.float64)
    rows = torch.cat([units.rows[bending], units.affine[fixed]])
    skip = pad(double(residual.skip_matrix()), (0, 1))
    scaled = normalised(factors, units.down[:, both], rows, skip)
    if scaled.noise > 0:
        return Deviation(math.inf, torch.zeros_like(skip), False)
    down, up, skip = scaled.down, scaled.up, scaled.target

    stands, line, length = lines_of(units.keys[bending], units.up_to)
    length = ldexp(length, scaled.shift[stands[line]] - scaled.shift[:count])
    v, terms = up[stands], down[:, :count] * length.abs()
    sums, weight = (
        torch.zeros(len(part), 2 * len(v), dtype=part.dtype).index_add_(1, 2 * line + (length < 0), part)
        for part in (terms, terms.norm(dim=0)[None])
    )
    sums, weight = sums.unflatten(1, (-1, 2)), weight[0].unflatten(0, (-1, 2))
    lighter, each = weight.argmin(1), torch.arange(len(v))
    other, heaviest = sums[:, each, lighter], weight.amax(1)
    lost = float(((sums.sum(2).norm(dim=0)) / heaviest).max()) if count else 0.0

    # what is linear: -2c α' (±v) of each line with two sides, and the units that do not bend
    sided = weight[each, lighter] > 0
    coefficients = torch.cat([(other * (1 - 2.0 * lighter))[:, sided], down[:, count:]], 1)
    linear_rows = torch.cat([v[sided], up[count:]])
    weights = torch.cat([weight[each, lighter][sided], down[:, count:].norm(dim=0)])
    linear = accurate_product(skip, coefficients, linear_rows)
    total = float(skip.norm() + (weights * linear_rows.norm(dim=1)).sum())
    explained = float(linear.norm()) <= (sum(skip.shape) + len(linear_rows)) * EPS * total

    # rows that are multiples of v only up to rounding, and the roundings in sums of more than two terms
    loose = torch.frexp(length.abs()).mantissa != 0.5
    off = (up[:count] - length[:, None] * v[line]).abs() + 2 * EPS * up[:count].abs()
    steep = residual.block.activation(torch.tensor([1.0, -1.0], dtype=v.dtype)).abs().max() / abs(2 * slope)
    strays = steep * (down[:, :count].norm(dim=0) @ torch.where(loose[:, None], off, 0.0))
    per_line = torch.bincount(line, minlength=1) - 2 + torch.bincount(line, loose, minlength=1)
    roundings = 2 * max(float(per_line.max()), 0) + 2 * (math.frexp(abs(slope))[0] != 0.5)

    weights = torch.cat([torch.ones(len(skip), dtype=skip.dtype), weights])
    against = _against(torch.cat([skip, linear_rows]), weights, linear, strays)
    return Deviation(lost + against + roundings * EPS, ldexp(linear, scaled.exponent), explained)


def _side_by_side(block: MLP | GatedMLP, network: MLP | GatedMLP) -> Units:
    """The units of the block and, subtracted, those of the network, each with its output bias as a unit.

    Units that both have in the same place are left out.
    """
    ours, theirs = (_with_bias(units_of(side, constants=True), side) for side in (block, network))
    if ours.down.shape == theirs.down.shape:
        pairs = ((getattr(ours, name), getattr(theirs, name)) for name in ("keys", "rows"))
        same = (ours.down == theirs.down).all(dim=0)
        for one, other in pairs:
            same &= (one == other).all(dim=1)
        ours, theirs = ours.chosen(~same), theirs.chosen(~same)
    names = ("keys", "rows", "affine", "constant")
    parts = {name: torch.cat([getattr(ours, name), getattr(theirs, name)]) for name in names}
    return Units(torch.cat([ours.down, -theirs.down], 1), up_to=ours.up_to, **parts)


def _with_bias(units: Units, block: MLP | GatedMLP) -> Units:
    if isinstance(block, GatedMLP) or block.down_bias is None:
        return units
    one = torch.eye(units.rows.shape[1], dtype=units.rows.dtype)[-1:]
    return Units(
        torch.cat([units.down, double(block.down_bias)[:, None]], 1),
        pad(units.keys, (0, 0, 0, 1)),
        pad(units.rows, (0, 0, 0, 1)),
        torch.cat([units.affine, one]),
        torch.cat([units.constant, torch.tensor([True])]),
        units.up_to,
    )


def _against(
    terms: Float[Tensor, "n k"],
    weights: Float[Tensor, "n"],
    linear: Float[Tensor, "d k"],
    strays: Float[Tensor, "k"],
) -> float:
    """An ε with ‖linear x‖ + Σ strays_j |x_j| ≤ ε ‖diag(weights) terms x‖ for all x, nearly the least one.

    The rows of ``linear`` are combinations of those of ``terms``, so that of columns that depend on others
    exactly nothing has to be known; infinite where columns depend on others nearly.
    """
    columns = terms.any(dim=0).nonzero().flatten()
    for exactly in (False, True):
        if exactly and terms.numel() > ELIMINATED:
            break
        chosen = torch.tensor(exact_pivots(terms)) if exactly else columns
        weighted = weights[:, None] * terms[:, chosen]
        scale = exponents(weighted.norm(dim=0, keepdim=True), 0)
        weighted = ldexp(weighted, -scale)
        factored = positive_factor(weighted.T @ weighted, len(weighted))
        if factored is None:
            continue
        solved = torch.linalg.solve_triangular(factored[0], ldexp(linear[:, chosen], -scale).T, upper=False)
        if not bool(strays.any()):
            return 1.1 * float(solved.norm())
        if bool(strays[~torch.isin(torch.arange(len(strays)), chosen)].any()):
            return math.inf
        unit = torch.diag(ldexp(strays[chosen], -scale[0]))
        apart = torch.linalg.solve_triangular(factored[0], unit, upper=False).norm(dim=0)
        return 1.1 * float(solved.norm() + apart.sum())
    return math.inf
