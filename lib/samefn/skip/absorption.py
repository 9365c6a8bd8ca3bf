"""Can a block absorb its own skip?  Decide it, construct the network, or refute it with a certificate.

The question: given A (the skip) and B(x) = Σ a_i σ(u_i·x), is Ax + B(x) = B'(x) for some
residual-free B' of the same kind and width?  For an activation of odd slope c,
σ(z) - σ(-z) = 2cz, and no redundant unit the answer is yes exactly when a set S of units satisfies

    A + 2c Σ_{i∈S} a_i u_iᵀ = 0        (the submatrix criterion; Theorem 8 of [A] for ReLU, A = I)

and then B' is B with the rows of S negated.  ``absorb`` decides this on the weights, never on
samples: ``RULES`` says which theorem speaks for which block, ``criterion`` holds the subset problem,
``collect`` and ``width`` the blocks with redundant units, and ``deviation`` judges every network that
is returned, without asking how it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, SupportsIndex

import scipy.linalg
import torch
from torch import Tensor
from torch.nn.functional import pad

from ..activations import Activation
from ..networks import MLP, GatedMLP, Residual
from .collect import collect, constants_count, keys_of, may_depend, units_of
from .criterion import (
    EPS,
    Refuted,
    Undecided,
    accurate_product,
    double,
    in_float64,
    ldexp,
    narrowed,
    normalised,
    odd_slope_of,
    rebuilt,
    require_units,
)
from .deviation import compare
from .width import Realisation, build, spend

__all__ = ["Absorption", "absorb", "flip"]

Reason = Literal[
    # what decided
    "zero skip",
    "linearisation",
    "bounded",
    "independence",
    "degree",
    "submatrix",
    "degenerate",
    "linear",
    # what stood in the way
    "precision",
    "search",
    "biases",
    "gate",
    "activation",
]


@dataclass(frozen=True)
class Absorption:
    """What :func:`absorb` found, and what it promises.

    ``absorbed``: True, False, or None where the question is left undecided.
    ``reason``: one word: "submatrix" (the criterion), "degenerate" (X-DEG), "degree" (A-P5),
    "linearisation" (A-P6), "bounded", "independence", "linear" (a rank), "zero skip"; where undecided, what
    stood in the way: "degenerate", "precision", "search", "biases", "gate", "activation".

    True: ``network`` is a residual-free block, and for *every* x, at every scale and in every direction,
    ‖residual(x) - network(x)‖ is at most ``error`` times the sum of the sizes of the terms that both sides
    add up at x: ‖Ax‖, each unit's ‖a_i σ(u_i·x + b_i)‖, the output biases.  ``error`` is computed from the
    weights of ``network``, for exact arithmetic in their use (:mod:`samefn.skip.deviation`).  It is at most
    2^-40, and the linear part that is left is no larger than one rounding of each weight can make it; where
    either fails, or that part is up to eight times as large, the answer is None, "precision".  The network
    has the block's dtype if that holds it exactly, and otherwise float64.  ``flipped`` is the set S, where
    the criterion holds.

    False: ``margin`` > 0 is a lower bound of ‖A + 2c P_S‖_F over every S (over S = ∅, that is ‖A‖_F, where
    the answer is no for all weights; of the distance, in that norm, to the nearest residual-free linear part
    for degenerate and linear blocks).  A bound of all rounding errors has been subtracted.
    ``certificate``: a matrix Y whose bound (see :func:`~samefn.skip.criterion.certified_bound`) is
    ``margin``, if one was used.

    Weights multiplied by powers of two in a way that keeps the criterion have the same answer, the margin
    multiplied; so have units in another order, where S is unique; and a block of lower precision the
    answer of its float64 copy.
    ``claim``: the id of the claim that the verdict rests on; "" where undecided, or nothing needs proof.
    X-ODD, X-BIAS, X-GLU and X-DEG name results of this library that are no claims of the book: of these the
    book proves what ``skip/summary`` and ``beyond/transformer`` contain.

    >>> from samefn import Residual, absorb
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> verdict = absorb(Residual(random_mlp(4, 16, "gelu", generator=Draw(0))))
    >>> verdict.absorbed, verdict.claim, verdict.margin > 0
    (False, 'A-T10', True)
    """

    absorbed: bool | None
    reason: Reason
    flipped: tuple[int, ...] | None = None
    network: MLP | GatedMLP | None = field(default=None, repr=False)
    margin: float = 0.0
    error: float = 0.0
    certificate: Tensor | None = field(default=None, repr=False)
    claim: str = ""


# --- which theorem speaks for which block -------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """What is known of the residual blocks of which ``applies`` is true; ``claim`` is the id of the proof.

    ``verdict``: "always" or "never" absorbed, "undecided", or as the "criterion" or a "rank" says of the
    given weights.
    """

    applies: Callable[[Residual], bool]
    verdict: Literal["always", "never", "undecided", "criterion", "rank"]
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
    Rule(gated(lambda b: b.gate_bias is not None and odd_slope_of(b) is None), "undecided", "biases"),
    Rule(gated(lambda b: vanishes_at_zero(b.activation)), "never", "linearisation", "A-P6"),
    Rule(gated(lambda b: odd_slope_of(b) is None), "undecided", "gate"),
    Rule(plain(lambda b: b.activation.bounded), "never", "bounded", "X-ODD"),
    Rule(plain(lambda b: not b.activation.spans_linear), "never", "independence", "X-ODD"),
    # at x = 0 both sides are their output bias, so these are equal and drop out
    Rule(plain(lambda b: homogeneous_of_another_degree(b) and b.up_bias is None), "never", "degree", "A-P5"),
    Rule(plain(homogeneous_of_another_degree), "undecided", "biases"),
    Rule(plain(lambda b: b.activation.name == "identity"), "rank", "linear"),
    Rule(plain(lambda b: b.activation.odd_slope is None), "undecided", "activation"),
    # |z|: units bend or vanish together, and never add a linear map
    Rule(plain(lambda b: b.activation.odd_slope == 0 and not has_biases(b)), "never", "submatrix", "X-ODD"),
    Rule(plain(lambda b: b.activation.odd_slope == 0), "never", "submatrix", "X-BIAS"),
    Rule(plain(may_depend), "undecided", "biases"),
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

    Covers [A] Propositions 5 and 6 and Theorems 8 and 10, and extensions of them: every odd-linear
    activation, any d×d skip matrix, biases (X-ODD, X-BIAS), sigmoid gates (X-GLU), degenerate blocks (X-DEG).
    "Same kind" means: the same activation, and biases only where the block has them.

    Where the rank-one matrices a_i u_iᵀ are independent the work is O(m²d + md² + m³); otherwise
    certificates are tried, and up to 40 units all sets.  Weights of lower precision are decided in float64,
    which holds them exactly.  What an answer promises: :class:`Absorption`.
    Raises TypeError if ``residual`` is not a Residual.

    >>> from samefn import absorb
    >>> from samefn.draw import Draw
    >>> from samefn.functions import gap
    >>> from samefn.skip.planted import running_example
    >>> residual = running_example()
    >>> verdict = absorb(residual)
    >>> verdict.absorbed, verdict.flipped
    (True, (0, 1, 2))
    >>> gap(residual, verdict.network, Draw(0).normal(1000, 2)) < 1e-14
    True
    >>> refused = absorb(running_example(moved=0.1))
    >>> refused.absorbed, f"{refused.margin:.4f}"  # no set S comes nearer
    (False, '0.0707')
    """
    rule = next(rule for rule in RULES if rule.applies(residual))
    match rule.verdict:
        case "always":
            return Absorption(True, rule.reason, (), residual.block, claim=rule.claim)
        case "never":
            return Absorption(False, rule.reason, margin=_size(residual.skip_matrix()), claim=rule.claim)
        case "undecided":
            return Absorption(None, rule.reason)
        case "criterion":
            return _by_criterion(residual, rule)
        case "rank":
            return _by_rank(residual, rule)


def _size(matrix: Tensor) -> float:
    """‖·‖_F, rounded down, without overflow or underflow on the way."""
    nothing = (
        torch.zeros(len(matrix), 0, dtype=torch.float64),
        torch.zeros(0, matrix.shape[1], dtype=torch.float64),
    )
    scaled = normalised(torch.zeros(0, dtype=torch.float64), *nothing, double(matrix))
    return scaled.unscaled(float(scaled.target.norm()) * (1 - matrix.numel() * EPS))


def _by_criterion(residual: Residual, rule: Rule) -> Absorption:
    block = residual.block
    exact = in_float64(residual)
    collected = collect(exact)
    if collected is None:
        return Absorption(None, "degenerate")
    redundant = len(collected.stands) < block.width
    reason, claim = ("degenerate", "X-DEG") if redundant else (rule.reason, rule.claim)
    match spend(collected):
        case Realisation() as found if redundant:
            return _checked(residual, exact, build(collected, found), reason, claim)
        case Realisation(flips):
            flipped = tuple(flips.nonzero().flatten().tolist())
            return _checked(residual, exact, flip(exact.block, flipped), reason, claim, flipped)
        case Refuted(margin, certificate):
            margin = collected.criterion.unscaled(margin)
            if margin == 0:
                return Absorption(None, "precision")
            return Absorption(False, reason, margin=margin, certificate=certificate, claim=claim)
        case Undecided(why):
            return Absorption(None, "degenerate" if redundant and why == "search" else why)


def _checked(
    residual: Residual,
    exact: Residual,
    network: MLP | GatedMLP | None,
    reason: Reason,
    claim: str,
    flipped: tuple[int, ...] | None = None,
) -> Absorption:
    """True, if the network is as near as it has to be, whoever made it."""
    if network is None or not (deviation := compare(exact, network)).negligible:
        return Absorption(None, "precision")
    network = narrowed(network, residual.block.up)
    return Absorption(True, reason, flipped, network, error=deviation.error, claim=claim)


def _by_rank(residual: Residual, rule: Rule) -> Absorption:
    """A linear block: width m makes the maps of rank at most m, so the rank of A + W_down W_up decides."""
    exact = in_float64(residual)
    units = units_of(exact.block, constants_count(exact.block))
    skip = pad(double(exact.skip_matrix()), (0, units.rows.shape[1] - exact.dim_in))
    ones = torch.ones(exact.block.width, dtype=torch.float64)
    scaled = normalised(ones, units.down, units.rows, skip)
    whole, m = accurate_product(scaled.target, scaled.down, scaled.up), exact.block.width
    if m >= len(whole):
        down, up = torch.eye(len(whole), m, dtype=torch.float64), pad(whole, (0, 0, 0, m - len(whole)))
    else:
        beyond = float(torch.linalg.svdvals(whole)[m]) - scaled.rounding()
        if beyond > 0 and (margin := scaled.unscaled(beyond)) > 0:
            return Absorption(False, rule.reason, margin=margin)
        up = whole[scipy.linalg.qr(whole.numpy().T, mode="r", pivoting=True)[-1][:m]]
        down = whole @ torch.linalg.pinv(up, rtol=64 * EPS)
    weights = {"down": ldexp(down, scaled.exponent), "up": up[:, : exact.dim_in].clone()}
    if exact.block.up_bias is not None:
        weights["up_bias"] = pad(up[:, exact.dim_in :], (0, 1))[:, 0].clone()
    if exact.block.down_bias is not None:
        weights["down_bias"] = torch.zeros_like(down[:, 0])
        left = compare(exact, rebuilt(exact.block, **weights)).linear
        weights["down_bias"] = left[:, -1].clone()
    return _checked(residual, exact, rebuilt(exact.block, **weights), rule.reason, rule.claim)


def flip(block: MLP | GatedMLP, units: Iterable[SupportsIndex]) -> MLP | GatedMLP:
    """The block with the rows of ``units`` negated, its output bias adjusted if it has one.

    For an activation of odd slope c this changes the function by -2c Σ a_i (u_i·x) over the units,
    and by the constant -2c Σ a_i b_i only if there is no output bias to take it up.
    Raises ValueError if the block's activation has no odd slope, or a unit does not exist or is named
    twice, TypeError for units that are no integers.

    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> from samefn.skip.absorption import flip
    >>> block, S, x = random_mlp(2, 5, generator=Draw(0)), [0, 3], Draw(1).normal(100, 2)
    >>> P_S = block.down[:, S] @ block.up[S]
    >>> torch.allclose(flip(block, S)(x), block(x) - x @ P_S.T)
    True
    """
    slope = odd_slope_of(block)
    if slope is None:
        raise ValueError(f"block must have an activation with an odd slope, got {block.activation.name}")
    chosen = require_units(block, units)
    sign = torch.ones_like(block.up.detach()[:, 0])
    sign[chosen] = -1
    changed = {"up": block.up.detach() * sign[:, None], "down": block.down.detach().clone()}
    bias = block.gate_bias if isinstance(block, GatedMLP) else block.up_bias
    if bias is not None:
        changed["gate_bias" if isinstance(block, GatedMLP) else "up_bias"] = bias.detach() * sign
    if isinstance(block, GatedMLP):
        changed["gate"] = block.gate.detach() * sign[:, None]
    elif block.down_bias is not None:
        start, down, bias = double(block.down_bias), double(block.down[:, chosen]), keys_of(block)[chosen, -1]
        turned = accurate_product(start[:, None], 2 * slope * down, bias[:, None])[:, 0]
        changed["down_bias"] = turned.to(block.down_bias)
    return rebuilt(block, **changed)
