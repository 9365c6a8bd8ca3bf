"""Can a block absorb its own skip?  Decide it, construct the network, or refute it with a certificate.

The question: given A (the skip) and B(x) = Σ a_i σ(u_i·x), is Ax + B(x) = B'(x) for some
residual-free B' of the same kind and width?  For an activation of odd slope c,
σ(z) - σ(-z) = 2cz, and no redundant unit the answer is yes exactly when a set S of units satisfies

    A + 2c Σ_{i∈S} a_i u_iᵀ = 0        (the submatrix criterion; Theorem 8 of [A] for ReLU, A = I)

and then B' is B with the rows of S negated.  ``absorb`` decides this on the weights, never on
samples: ``RULES`` says which theorem speaks for which block, ``criterion`` holds the subset problem,
``collect`` and ``width`` the blocks with redundant units.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ..activations import Activation
from ..networks import MLP, GatedMLP, Residual
from .collect import Collected, collect, live_units, may_depend
from .criterion import (
    Found,
    Refuted,
    Undecided,
    double,
    odd_slope_of,
    require_residual,
    require_units,
    solve,
)
from .width import Realisation, build, spend

Reason = Literal[
    # what decided
    "zero skip",
    "linearisation",
    "bounded",
    "independence",
    "degree",
    "submatrix",
    "degenerate",
    # what stood in the way
    "precision",
    "search",
    "biases",
    "gate",
    "linear",
    "activation",
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
    S = ∅, that is ‖A‖_F, where the answer is no for all weights; the distance to the nearest residual-free
    linear part, in the spectral norm, for degenerate blocks); otherwise 0.
    ``certificate``: a matrix Y whose bound (see :func:`~samefn.skip.criterion.certified_bound`) is
    ``margin``, if one was used.
    ``claim``: the id of the claim that the verdict rests on; "" where undecided, or nothing needs proof.
    The chapters of X-ODD, X-BIAS, X-GLU and X-DEG are still to come: :mod:`samefn.claims` lacks them.
    """

    absorbed: bool | None
    reason: Reason
    flipped: tuple[int, ...] | None = None
    network: MLP | GatedMLP | None = field(default=None, repr=False)
    margin: float = 0.0
    certificate: Tensor | None = field(default=None, repr=False)
    claim: str = ""


# --- which theorem speaks for which block -------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """What is known of the residual blocks of which ``applies`` is true; ``claim`` is the id of the proof.

    ``verdict``: "always" or "never" absorbed, "undecided", or as the "criterion" says of the given weights.
    """

    applies: Callable[[Residual], bool]
    verdict: Literal["always", "never", "undecided", "criterion"]
    reason: Reason
    claim: str = ""


def gated(applies: Callable[[GatedMLP], bool]) -> Callable[[Residual], bool]:
    """True of the residual blocks whose block is a GatedMLP with that property."""
    return lambda residual: isinstance(residual.block, GatedMLP) and applies(residual.block)


def plain(applies: Callable[[MLP], bool]) -> Callable[[Residual], bool]:
    """True of the residual blocks whose block is an MLP with that property."""
    return lambda residual: isinstance(residual.block, MLP) and applies(residual.block)


def has_zero_skip(residual: Residual) -> bool:
    return not bool(residual.skip_matrix().any())


def vanishes_at_zero(activation: Activation) -> bool:
    return activation.continuous and float(activation(torch.zeros((), dtype=torch.float64))) == 0


def homogeneous_of_another_degree(block: MLP) -> bool:
    return block.activation.degree not in (None, 1)


def has_biases(block: MLP) -> bool:
    return block.up_bias is not None or block.down_bias is not None


def leaves_float64(residual: Residual) -> bool:
    """Whether the sizes that the criterion compares overflow, or vanish though their entries do not."""
    block = residual.block
    sizes = double(block.down).norm(dim=0) * double(block.up).norm(dim=1)
    overflow = not bool(torch.isfinite(sizes.sum() ** 2))
    return (
        overflow
        or float(double(residual.skip_matrix()).norm()) == 0
        or bool((sizes[live_units(block)] == 0).any())
    )


def in_theorem_8(residual: Residual) -> bool:
    return residual.block.activation.name == "relu" and residual.dim_in >= 2


def in_theorem_10(residual: Residual) -> bool:
    return residual.block.activation.name == "gelu"


def has_identity_skip(residual: Residual) -> bool:
    skip = residual.skip_matrix()
    return torch.equal(skip, torch.eye(len(skip)).to(skip))


def reduces_by_lemma_4(residual: Residual) -> bool:
    invertible = int(torch.linalg.matrix_rank(double(residual.skip_matrix()))) == residual.dim_in
    return invertible and (in_theorem_8(residual) or in_theorem_10(residual))


# read from top to bottom: the first rule that applies is the one
RULES: tuple[Rule, ...] = (
    Rule(has_zero_skip, "always", "zero skip"),
    Rule(gated(lambda b: b.gate_bias is not None), "undecided", "biases"),
    Rule(gated(lambda b: vanishes_at_zero(b.activation)), "never", "linearisation", "A-P6"),
    Rule(gated(lambda b: odd_slope_of(b) is None), "undecided", "gate"),
    Rule(plain(lambda b: b.activation.bounded), "never", "bounded", "X-ODD"),
    Rule(plain(lambda b: not b.activation.spans_linear), "never", "independence", "X-ODD"),
    # at x = 0 both sides are their output bias, so these are equal and drop out
    Rule(plain(lambda b: homogeneous_of_another_degree(b) and b.up_bias is None), "never", "degree", "A-P5"),
    Rule(plain(homogeneous_of_another_degree), "undecided", "biases"),
    Rule(plain(lambda b: b.activation.name == "identity"), "undecided", "linear"),
    Rule(plain(lambda b: b.activation.odd_slope is None), "undecided", "activation"),
    # |z|: units bend or vanish together, and never add a linear map
    Rule(plain(lambda b: b.activation.odd_slope == 0 and not has_biases(b)), "never", "submatrix", "X-ODD"),
    Rule(plain(lambda b: b.activation.odd_slope == 0), "never", "submatrix", "X-BIAS"),
    Rule(plain(may_depend), "undecided", "biases"),
    Rule(leaves_float64, "undecided", "precision"),
    Rule(gated(lambda b: b.activation.name == "sigmoid"), "criterion", "submatrix", "X-GLU"),
    Rule(plain(has_biases), "criterion", "submatrix", "X-BIAS"),
    # neither gates nor biases from here on
    Rule(lambda r: in_theorem_8(r) and has_identity_skip(r), "criterion", "submatrix", "A-T8"),
    Rule(lambda r: in_theorem_10(r) and has_identity_skip(r), "criterion", "submatrix", "A-T10"),
    Rule(reduces_by_lemma_4, "criterion", "submatrix", "A-L4"),
    Rule(lambda r: True, "criterion", "submatrix", "X-ODD"),
)


# --- the verdict --------------------------------------------------------------------------------


def absorb(residual: Residual) -> Absorption:
    """Decide whether a residual block equals a residual-free block of the same kind and width.

    Covers [A] Propositions 5 and 6 and Theorems 8 and 10, and extensions whose chapters are still to
    come: every odd-linear activation, any d×d skip matrix, biases (X-ODD, X-BIAS), sigmoid gates
    (X-GLU), degenerate blocks of few lines (X-DEG).  "Same kind" means: the same activation, and biases
    only where the block has them.

    Where the rank-one matrices a_i u_iᵀ are independent the work is O(m²d + md² + m³); otherwise
    certificates are tried and then integer programming.  Weights of lower precision are decided
    in float64, which holds them exactly.  Raises TypeError if ``residual`` is not a Residual.
    """
    require_residual(residual)
    rule = next(rule for rule in RULES if rule.applies(residual))
    match rule.verdict:
        case "always":
            return Absorption(True, rule.reason, (), residual.block, claim=rule.claim)
        case "never":
            size = float(double(residual.skip_matrix()).norm())
            return Absorption(False, rule.reason, margin=size, claim=rule.claim)
        case "undecided":
            return Absorption(None, rule.reason)
        case "criterion":
            return _by_criterion(residual, rule)


def _by_criterion(residual: Residual, rule: Rule) -> Absorption:
    collected = collect(residual)
    if collected is None:
        return Absorption(None, "degenerate")
    if collected.spare:
        return _by_spare_units(residual, collected)
    match solve(collected.criterion):
        case Found(flips):
            flipped = tuple(flips.nonzero().flatten().tolist())
            return Absorption(True, rule.reason, flipped, flip(residual.block, flipped), claim=rule.claim)
        case Refuted(margin, certificate):
            return Absorption(False, rule.reason, margin=margin, certificate=certificate, claim=rule.claim)
        case Undecided(reason):
            return Absorption(None, reason)


def _by_spare_units(residual: Residual, collected: Collected) -> Absorption:
    assert isinstance(residual.block, MLP)  # gated units are not collected
    match spend(collected):
        case Realisation() as realisation:
            network = build(residual.block, collected, realisation)
            return Absorption(True, "degenerate", network=network, claim="X-DEG")
        case Refuted(margin):
            return Absorption(False, "degenerate", margin=margin, claim="X-DEG")
        case Undecided():
            return Absorption(None, "degenerate")


def flip(block: MLP | GatedMLP, units: Iterable[int]) -> MLP | GatedMLP:
    """The block with the rows of ``units`` negated, its output bias adjusted if it has one.

    For an activation of odd slope c this changes the function by -2c Σ a_i (u_i·x) over the units,
    and by the constant -2c Σ a_i b_i only if there is no output bias to take it up.
    Raises ValueError if the block's activation has no odd slope or a unit does not exist.
    """
    slope = odd_slope_of(block)
    if slope is None:
        raise ValueError(f"block must have an activation with an odd slope, got {block.activation.name}")
    chosen = require_units(block, units)
    sign = torch.ones(block.width, dtype=block.up.dtype, device=block.up.device)
    sign[chosen] = -1
    up, down = block.up.detach() * sign[:, None], block.down.detach().clone()
    if isinstance(block, GatedMLP):
        gate_bias = None if block.gate_bias is None else block.gate_bias.detach() * sign
        return GatedMLP(block.gate.detach() * sign[:, None], up, down, block.activation, gate_bias)
    up_bias = None if block.up_bias is None else block.up_bias.detach() * sign
    down_bias = None if block.down_bias is None else block.down_bias.detach().clone()
    if block.up_bias is not None and down_bias is not None:
        down_bias += 2 * slope * down[:, chosen] @ block.up_bias.detach()[chosen]
    return MLP(up, down, block.activation, up_bias, down_bias)
