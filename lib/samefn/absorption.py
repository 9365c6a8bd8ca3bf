"""Can a block absorb its own skip?  Decide it, construct the network, or refute it with a certificate.

The question: given A (the skip) and B(x) = Σ a_i σ(u_i·x), is Ax + B(x) = B'(x) for some
residual-free B' of the same kind and width?  For σ with σ(z) - σ(-z) = 2cz the answer is yes
exactly when a set S of units satisfies

    A + 2c Σ_{i∈S} a_i u_iᵀ = 0        (the submatrix criterion; Theorem 8 of [A] for ReLU, A = I)

and then B' is B with the rows of S negated.  ``absorb`` decides this on the weights, never on
samples.  The subset problem itself is in ``criterion``, blocks with redundant units in
``degenerate``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from .criterion import (
    certified_bound,
    criterion_of,
    double,
    odd_slope_of,
    require_residual,
    solve,
    subset_distances,
    trace_test,
)
from .degenerate import decide_degenerate, lines_of, live_units, may_depend, minimal_width
from .networks import MLP, GatedMLP, Residual

__all__ = [
    "Absorption",
    "absorb",
    "certified_bound",
    "flip",
    "minimal_width",
    "plant",
    "subset_distances",
    "trace_test",
]


@dataclass(frozen=True)
class Absorption:
    """What :func:`absorb` found.

    ``absorbed``: True, False, or None where the question is left undecided.
    ``reason``: one word: "submatrix" (the criterion), "degenerate" (X-DEG), "degree" (A-P5),
    "linearisation" (A-P6), "bounded", "independence", "zero skip"; where undecided, what stood
    in the way: "degenerate", "precision", "search", "biases", "gate", "linear", "activation".
    ``flipped``: the set S, where the criterion holds; ``network``: the residual-free block.
    ``margin``: where ``absorbed`` is False, a lower bound of ‖A + 2c P_S‖_F over every S (over
    S = ∅, that is ‖A‖_F, where σ has no odd slope; the distance to the nearest residual-free
    linear part, in the spectral norm, for degenerate blocks); otherwise 0.
    ``certificate``: a matrix Y whose bound (see :func:`certified_bound`) is ``margin``, if one
    was used.
    """

    absorbed: bool | None
    reason: str
    flipped: tuple[int, ...] | None = None
    network: MLP | GatedMLP | None = field(default=None, repr=False)
    margin: float = 0.0
    certificate: Tensor | None = field(default=None, repr=False)


def absorb(residual: Residual) -> Absorption:
    """Decide whether a residual block equals a residual-free block of the same kind and width.

    Covers [A] Propositions 5 and 6 and Theorems 8 and 10, and their extensions in Part III: every
    odd-linear activation, any d×d skip matrix, biases (X-ODD, X-BIAS), sigmoid gates (X-GLU),
    degenerate blocks of few lines (X-DEG).  "Same kind" means: the same activation, and biases
    only where the block has them.

    Where the rank-one matrices a_i u_iᵀ are independent the work is O(m²d + md² + m³); otherwise
    certificates are tried and then integer programming.  Weights of lower precision are decided
    in float64, which holds them exactly.  Raises TypeError if ``residual`` is not a Residual.
    """
    require_residual(residual)
    block, skip = residual.block, double(residual.skip_matrix())
    activation, size = block.activation, float(skip.norm())
    if not bool(skip.any()):
        return Absorption(True, "zero skip", flipped=(), network=block)
    if isinstance(block, GatedMLP):
        if block.gate_bias is not None:
            return Absorption(None, "biases")
        if activation.continuous and float(activation(torch.zeros((), dtype=torch.float64))) == 0:
            return Absorption(False, "linearisation", margin=size)
        if odd_slope_of(block) is None:
            return Absorption(None, "gate")
    elif activation.bounded:
        return Absorption(False, "bounded", margin=size)
    elif not activation.spans_linear:
        return Absorption(False, "independence", margin=size)
    elif activation.degree not in (None, 1):
        if block.up_bias is None:
            return Absorption(False, "degree", margin=size)
        return Absorption(None, "biases")
    elif activation.name == "identity":
        return Absorption(None, "linear")
    elif activation.odd_slope is None:
        return Absorption(None, "activation")
    elif activation.odd_slope == 0:  # |z|: units bend or vanish together, and never add a linear map
        return Absorption(False, "submatrix", margin=size)
    elif may_depend(block):
        return Absorption(None, "biases")

    live = live_units(block)
    sizes = double(block.down).norm(dim=0) * double(block.up).norm(dim=1)
    if size == 0 or not bool(torch.isfinite(sizes.sum() ** 2)) or bool((sizes[live] == 0).any()):
        return Absorption(None, "precision")  # beyond the range of float64
    lines, representatives = lines_of(block)
    if bool(live.all()) and len(representatives) == block.width:
        return _decide(residual)
    if isinstance(block, GatedMLP):
        return Absorption(None, "degenerate")
    network, margin = decide_degenerate(residual, lines, representatives, live)
    if network is not None:
        return Absorption(True, "degenerate", network=network)
    return Absorption(False if margin > 0 else None, "degenerate", margin=margin)


def _decide(residual: Residual) -> Absorption:
    """A nondegenerate block: the criterion decides."""
    flips, margin, certificate, reason = solve(criterion_of(residual))
    if flips is None:
        absorbed = False if margin > 0 else None
        return Absorption(absorbed, reason, margin=margin, certificate=certificate)
    flipped = tuple(flips.nonzero().flatten().tolist())
    return Absorption(True, "submatrix", flipped, flip(residual.block, flipped))


def flip(block: MLP | GatedMLP, units: tuple[int, ...]) -> MLP | GatedMLP:
    """The block with the rows of ``units`` negated, its output bias adjusted if it has one.

    For an activation of odd slope c this changes the function by -2c Σ a_i (u_i·x) over the units,
    and by the constant -2c Σ a_i b_i only if there is no output bias to take it up.
    Raises ValueError if the block's activation has no odd slope or a unit does not exist.
    """
    slope, chosen = odd_slope_of(block), list(units)
    if slope is None:
        raise ValueError(f"block must have an activation with an odd slope, got {block.activation.name}")
    if any(not 0 <= unit < block.width for unit in chosen):
        raise ValueError(f"units must lie in 0..{block.width - 1}, got {units}")
    sign = torch.ones(block.width, dtype=block.up.dtype, device=block.up.device)
    sign[chosen] = -1
    up = block.up.detach() * sign[:, None]
    down = block.down.detach().clone()
    if isinstance(block, GatedMLP):
        gate_bias = None if block.gate_bias is None else block.gate_bias.detach() * sign
        return GatedMLP(block.gate.detach() * sign[:, None], up, down, block.activation, gate_bias)
    up_bias = down_bias = None
    if block.up_bias is not None:
        up_bias = block.up_bias.detach() * sign
    if block.down_bias is not None:
        down_bias = block.down_bias.detach().clone()
        if block.up_bias is not None:
            down_bias += 2 * slope * down[:, chosen] @ block.up_bias.detach()[chosen]
    return MLP(up, down, block.activation, up_bias, down_bias)


def plant(block: MLP, units: tuple[int, ...], skip: Float[Tensor, "d d"] | None = None) -> Residual:
    """A residual block that absorbs its skip by flipping ``units``: the nearest in the columns a_i, i in units.

    Adds to those columns the least change (in Frobenius norm) after which 2c P_S = -A.
    Raises TypeError if ``block`` is not an MLP, ValueError if the rows of ``units`` do not span what
    is needed, or there is no criterion.
    """
    if not isinstance(block, MLP):
        raise TypeError(f"block must be an MLP, got {type(block).__name__}")
    criterion = criterion_of(Residual(block, skip))
    chosen = list(units)
    missing = -criterion.combine(torch.zeros(block.width, dtype=torch.float64).index_fill_(0, torch.tensor(chosen), 1))
    change = missing @ torch.linalg.pinv(2 * criterion.slope * criterion.up[chosen])
    down = double(block.down).clone()
    down[:, chosen] += change
    if float((2 * criterion.slope * change @ criterion.up[chosen] - missing).norm()) > 1e-9 * float(missing.norm()):
        raise ValueError(f"units must have rows that span the row space of what is missing, got {units}")
    planted = MLP(block.up.detach(), down.to(block.down.dtype), block.activation, block.up_bias, block.down_bias)
    return Residual(planted, skip)
