"""Can a block absorb its own skip?  Decide it, construct the network, or refute it with a certificate.

The question: given A (the skip) and B(x) = Σ a_i σ(u_i·x), is Ax + B(x) = B'(x) for some
residual-free B' of the same kind and width?  For σ with σ(z) - σ(-z) = 2cz the answer is yes
exactly when a set S of units satisfies

    A + 2c Σ_{i∈S} a_i u_iᵀ = 0        (the submatrix criterion; Theorem 8 of [A] for ReLU, A = I)

and then B' is B with the rows of S negated.  ``absorb`` decides this on the weights, never on
samples.  Three readings of a floating-point residual are kept apart: at most ``ROUNDING`` of the
size of the terms counts as zero, a certified lower bound above that counts as nonzero, and
anything between is left undecided.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from .networks import MLP, GatedMLP, Residual

ROUNDING = 2.0**-40  # a residual this small beside its terms is float64 noise of sums of a few thousand products
ENUMERATED = 10  # lines up to which degenerate blocks are decided by enumeration, 3^10 cases
INTEGER_PROGRAM = 200_000  # entries of the constraint matrix up to which integer programming is tried
NEAR_SOLUTIONS = 64  # sets that solve the criterion nearly, and are excluded one by one, before giving up


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


@dataclass(frozen=True)
class _Criterion:
    """A + 2c Σ_{i∈S} a_i u_iᵀ = 0, with the a_i as columns of ``down`` and the u_i as rows of ``up``.

    Where biases exist but no output bias, the rows carry the bias as a last column and A a zero one,
    so that the constant 2c Σ a_i b_i has to vanish too (X-BIAS).
    """

    slope: float
    down: Tensor
    up: Tensor
    target: Tensor

    def sizes(self) -> Tensor:
        """‖2c a_i u_iᵀ‖_F for every unit."""
        return 2 * abs(self.slope) * self.down.norm(dim=0) * self.up.norm(dim=1)

    def combine(self, coefficients: Tensor) -> Tensor:
        """A + 2c Σ coefficients_i a_i u_iᵀ."""
        return self.target + 2 * self.slope * (self.down * coefficients) @ self.up

    def inner(self, y: Tensor) -> Tensor:
        """⟨Y, 2c a_i u_iᵀ⟩ for every unit."""
        return 2 * self.slope * ((y.T @ self.down).T * self.up).sum(1)

    def holds(self, flips: Tensor) -> bool:
        residual = self.combine(flips.to(self.target.dtype)).norm()
        return bool(residual <= ROUNDING * (self.target.norm() + self.sizes()[flips].sum()))

    def noise(self) -> float:
        """No set whose exact residual exceeds this can pass :meth:`holds`."""
        return float(ROUNDING * (self.target.norm() + self.sizes().sum()))

    def bound(self, y: Tensor) -> float:
        """A lower bound of ‖A + 2c P_S‖_F over all S, rounding errors accounted for (X-CERT).

        ⟨Y, A + 2c P_S⟩ lies in an interval that does not depend on S once the unit with the
        largest coefficient is decided; Cauchy–Schwarz turns its distance from 0 into a bound.
        """
        norm = float(y.norm())
        if norm == 0:
            return 0.0
        weights = self.inner(y)
        start = float((y * self.target).sum())
        top = int(weights.abs().argmax())
        others = torch.cat([weights[:top], weights[top + 1 :]])
        low, high = float(others.clamp(max=0).sum()), float(others.clamp(min=0).sum())
        distance = min(
            max(start + shift + low, -(start + shift + high), 0.0) for shift in (0.0, float(weights[top]))
        )
        terms = sum(self.down.shape) + self.up.shape[1]
        error = terms * torch.finfo(y.dtype).eps * norm * float(self.target.norm() + self.sizes().sum())
        return max(distance - error, 0.0) / norm


def certified_bound(residual: Residual, y: Float[Tensor, "d d"]) -> float:
    """The lower bound of ‖A + 2c P_S‖_F over all S that the matrix ``y`` certifies (X-CERT, new).

    If ⟨Y, A⟩ + Σ min(0, 2c a_iᵀ Y u_i) > 0 then ⟨Y, A + 2c P_S⟩ is at least that for every S, and
    so is ‖Y‖_F ‖A + 2c P_S‖_F.  Returns 0 where ``y`` proves nothing.

    Raises TypeError if ``y`` is not a tensor, ValueError if it is not finite or not d×d (d×(d+1)
    where the block has biases but no output bias), or if the block has no submatrix criterion.
    """
    criterion = _criterion(residual)
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {type(y).__name__}")
    if not torch.isfinite(y).all():
        raise ValueError("y must be finite, got NaN or infinity")
    if y.shape != criterion.target.shape:
        raise ValueError(f"y must have shape {tuple(criterion.target.shape)}, got {tuple(y.shape)}")
    return criterion.bound(_double(y))


def trace_test(residual: Residual) -> float:
    """⟨A, A⟩ + Σ min(0, 2c a_iᵀ A u_i); for A = I and c > 0, d - 2c Σ max(0, -a_i·u_i).

    A positive value proves that no set S satisfies the criterion, hence that a nondegenerate
    block cannot absorb its skip (X-CERT, new).  Raises ValueError if there is no criterion.
    """
    criterion = _criterion(residual)
    return float((criterion.target**2).sum() + criterion.inner(criterion.target).clamp(max=0).sum())


def _slope(block: MLP | GatedMLP) -> float | None:
    """c, where flipping a unit changes the block by a linear map only; otherwise None."""
    if isinstance(block, GatedMLP):
        # sigmoid(z) + sigmoid(-z) = 1, so (w, u) -> (-w, -u) changes a unit by a (u·x): 2c = 1 (X-GLU)
        return 0.5 if block.activation.name == "sigmoid" else None
    return block.activation.odd_slope


def _double(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64)


def _criterion(residual: Residual) -> _Criterion:
    _require_residual(residual)
    block, slope = residual.block, _slope(residual.block)
    if slope is None:
        raise ValueError(f"residual.block has no submatrix criterion: {block.activation.name} has no odd slope")
    up, target = _double(block.up), _double(residual.skip_matrix())
    if isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None:
        up = torch.cat([up, _double(block.up_bias)[:, None]], 1)
        target = torch.cat([target, torch.zeros_like(target[:, :1])], 1)
    return _Criterion(slope, _double(block.down), up, target)


def _require_residual(residual: Residual) -> None:
    if not isinstance(residual, Residual):
        raise TypeError(f"residual must be a Residual, got {type(residual).__name__}")


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
    _require_residual(residual)
    block, skip = residual.block, _double(residual.skip_matrix())
    activation, size = block.activation, float(skip.norm())
    if not bool(skip.any()):
        return Absorption(True, "zero skip", flipped=(), network=block)
    if isinstance(block, GatedMLP):
        if block.gate_bias is not None:
            return Absorption(None, "biases")
        if float(activation(torch.zeros((), dtype=torch.float64))) == 0:
            return Absorption(False, "linearisation", margin=size)
        if _slope(block) is None:
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
    elif _may_depend(block):
        return Absorption(None, "biases")

    live = _live(block)
    sizes = _double(block.down).norm(dim=0) * _double(block.up).norm(dim=1)
    if size == 0 or not bool(torch.isfinite(sizes.sum() ** 2)) or bool((sizes[live] == 0).any()):
        return Absorption(None, "precision")  # beyond the range of float64
    lines, representatives = _lines(block)
    if bool(live.all()) and len(representatives) == block.width:
        return _decide(_criterion(residual), residual)
    if isinstance(block, GatedMLP):
        return Absorption(None, "degenerate")
    return _decide_degenerate(residual, lines, representatives, live)


def _live(block: MLP | GatedMLP) -> Tensor:
    """Which units have only nonzero weight vectors, so that they have an even part."""
    live = block.down.detach().any(dim=0) & block.up.detach().any(dim=1)
    return live & block.gate.detach().any(dim=1) if isinstance(block, GatedMLP) else live


def _may_depend(block: MLP | GatedMLP) -> bool:
    """Whether units of different classes may have dependent even parts: shifted parallel hardswish units.

    Modulo affine functions six of them are dependent where their kinks pair the points 0, a, a+b, 2a+b.
    """
    if block.activation.name != "hardswish" or isinstance(block, GatedMLP) or block.up_bias is None:
        return False
    directions = _lines(MLP(block.up.detach(), block.down.detach(), "relu"))[1]
    return len(directions) < block.width


def _constants_fit(block: MLP) -> bool:
    """Whether a bias takes up every constant that collecting the units leaves."""
    if block.up_bias is not None:
        return block.down_bias is not None
    constant = ~block.up.detach().any(dim=1) & block.down.detach().any(dim=0)
    return not bool(constant.any()) or float(block.activation(torch.zeros((), dtype=torch.float64))) == 0


def _lines(block: MLP | GatedMLP) -> tuple[Tensor, list[int]]:
    """The class of every unit whose even part another unit shares, and one unit of each class.

    Classes are lines of (u_i, b_i) for homogeneous σ, pairs ±(u_i, b_i) otherwise, and pairs of
    gate rows for gated blocks.  Equal lines have equal projections, so only neighbours in the
    order of one fixed projection are compared.
    """
    rows = _double(block.gate if isinstance(block, GatedMLP) else block.up)
    if isinstance(block, MLP) and block.up_bias is not None:
        rows = torch.cat([rows, _double(block.up_bias)[:, None]], 1)
    norms = rows.norm(dim=1, keepdim=True)
    if isinstance(block, MLP) and block.activation.degree == 1:
        rows = rows / norms.clamp_min(torch.finfo(rows.dtype).tiny)
    probe = torch.cos(torch.arange(1, rows.shape[1] + 1, dtype=rows.dtype) ** 2).to(rows.device)
    projection = (rows @ probe).abs()
    order = projection.argsort()
    gaps = projection[order].diff()
    scale = rows.norm(dim=1)[order]
    starts = torch.cat([torch.tensor([True]), (gaps > 1e-10 * scale[1:].clamp_min(1e-300)).cpu()])
    lines = torch.empty(len(rows), dtype=torch.long)
    representatives: list[int] = []
    first = 0
    for unit, new_run in zip(order.tolist(), starts.tolist()):
        if new_run:
            first = len(representatives)
        for line in range(first, len(representatives)):
            other = rows[representatives[line]]
            nearest = min((rows[unit] - other).norm(), (rows[unit] + other).norm())
            if nearest <= ROUNDING * other.norm():
                break
        else:
            line = len(representatives)
            representatives.append(unit)
        lines[unit] = line
    return lines, representatives


def _decide(criterion: _Criterion, residual: Residual) -> Absorption:
    """A nondegenerate block: the criterion decides."""
    flips, margin, certificate, reason = _solve(criterion)
    if flips is None:
        absorbed = False if margin > 0 else None
        return Absorption(absorbed, reason, margin=margin, certificate=certificate)
    flipped = tuple(flips.nonzero().flatten().tolist())
    return Absorption(True, "submatrix", flipped, flip(residual.block, flipped))


def _solve(criterion: _Criterion) -> tuple[Tensor | None, float, Tensor | None, str]:
    """(S as a mask, 0, None, reason) | (None, margin > 0, certificate, reason) | (None, 0, None, reason)."""
    flips, duals = _relax(criterion)
    if flips is not None:
        return flips, 0.0, None, "submatrix"
    margin, certificate = 0.0, None
    for y in duals:
        margin, certificate = max((margin, certificate), (criterion.bound(y), y), key=lambda pair: pair[0])
        if margin > criterion.noise() and y is not criterion.target:  # the target's own margin is often poor
            break
    if margin > criterion.noise():
        return None, margin, certificate, "submatrix"
    return _integer_program(criterion)


def _relax(criterion: _Criterion) -> tuple[Tensor | None, Iterable[Tensor]]:
    """Drop "0 or 1" and solve; the rounded solution if it satisfies the criterion, and dual matrices Y.

    With independent a_i u_iᵀ the real solution is unique, so rounding it is a full search.
    """
    sizes = criterion.sizes()
    duals = [criterion.target]
    if len(sizes) > criterion.target.numel():
        if criterion.target.numel() * len(sizes) > INTEGER_PROGRAM:
            return None, duals
        columns = _columns(criterion)
        box = scipy.optimize.lsq_linear(columns, -criterion.target.flatten().cpu().numpy(), (0, 1), tol=1e-14)
        coefficients = torch.from_numpy(box.x).to(criterion.target)
        return None, [*duals, criterion.combine(coefficients)]

    # the Gram matrix of the 2c a_i u_iᵀ, each scaled to norm 1
    gram = criterion.down.T @ criterion.down
    gram.mul_(criterion.up @ criterion.up.T).mul_(4 * criterion.slope**2)
    gram.div_(sizes[:, None]).div_(sizes[None, :])
    factor, info = torch.linalg.cholesky_ex(gram)
    del gram
    if int(info) != 0:
        return None, duals
    coefficients = torch.zeros_like(sizes)
    residual = criterion.target
    # the second pass is iterative refinement: the inner products see the residual, not the Gram matrix
    for _ in range(2):
        gradient = (criterion.inner(residual) / sizes)[:, None]
        coefficients = coefficients - torch.cholesky_solve(gradient, factor).flatten() / sizes
        residual = criterion.combine(coefficients)
    flips = coefficients > 0.5
    if criterion.holds(flips):
        return flips, duals
    fraction = (coefficients - flips.to(coefficients.dtype)).abs() * sizes
    return None, itertools.chain([*duals, residual], _pinning(criterion, factor, int(fraction.argmax())))


def _pinning(criterion: _Criterion, factor: Tensor, unit: int) -> Iterator[Tensor]:
    """Y with ⟨Y, 2c a_j u_jᵀ⟩ = [j = unit]: it fixes the unit's coefficient, which then must be 0 or 1."""
    sizes = criterion.sizes()
    basis = torch.zeros_like(sizes)
    basis[unit] = 1 / sizes[unit]
    weights = torch.cholesky_solve(basis[:, None], factor).flatten() / sizes
    yield criterion.combine(weights) - criterion.target


def _columns(criterion: _Criterion) -> np.ndarray:
    """The matrices 2c a_i u_iᵀ as columns, shape (entries of A, m)."""
    rank_one = torch.einsum("di,ik->dki", criterion.down, criterion.up)
    return (2 * criterion.slope * rank_one).flatten(0, 1).cpu().numpy()


def _integer_program(criterion: _Criterion) -> tuple[Tensor | None, float, Tensor | None, str]:
    """Search for c in {0,1}^m within a slack that covers the solver's own tolerances.

    Sets inside the slack that fail the exact test are excluded one at a time; once none is left,
    every set is off by at least the slack or by what the excluded ones measured.
    """
    entries, m = criterion.target.numel(), criterion.down.shape[1]
    if entries * m > INTEGER_PROGRAM:
        return None, 0.0, None, "search"
    columns, target = _columns(criterion), -criterion.target.flatten().cpu().numpy()
    scale = float(max(np.abs(columns).max(), np.abs(target).max()))
    slack = 1e-6 * (m + 10)  # integrality and rows are each met to 1e-6, relative to entries of at most 1
    constraints = [scipy.optimize.LinearConstraint(columns / scale, target / scale - slack, target / scale + slack)]
    margin = (slack - 1e-6 * (m + 2)) * scale
    for _ in range(NEAR_SOLUTIONS):
        found = scipy.optimize.milp(
            np.zeros(m),
            integrality=np.ones(m),
            bounds=scipy.optimize.Bounds(0, 1),
            constraints=constraints,
            options={"time_limit": 60.0},
        )
        if found.status == 2:  # infeasible
            return None, (margin if margin > criterion.noise() else 0.0), None, "submatrix"
        if found.x is None:
            return None, 0.0, None, "search"
        flips = torch.from_numpy(found.x > 0.5).to(criterion.down.device)
        if criterion.holds(flips):
            return flips, 0.0, None, "submatrix"
        margin = min(margin, float(criterion.combine(flips.to(criterion.target.dtype)).norm()))
        if margin <= criterion.noise():
            return None, 0.0, None, "precision"
        exclude = np.where(found.x > 0.5, -1.0, 1.0)
        constraints.append(scipy.optimize.LinearConstraint(exclude, 1 - float((found.x > 0.5).sum()), np.inf))
    return None, 0.0, None, "search"


def flip(block: MLP | GatedMLP, units: tuple[int, ...]) -> MLP | GatedMLP:
    """The block with the rows of ``units`` negated, its output bias adjusted if it has one.

    For an activation of odd slope c this changes the function by -2c Σ a_i (u_i·x) over the units,
    and by the constant -2c Σ a_i b_i only if there is no output bias to take it up.
    Raises ValueError if the block's activation has no odd slope or a unit does not exist.
    """
    slope, chosen = _slope(block), list(units)
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
    criterion = _criterion(Residual(block, skip))
    chosen = list(units)
    missing = -criterion.combine(torch.zeros(block.width, dtype=torch.float64).index_fill_(0, torch.tensor(chosen), 1))
    change = missing @ torch.linalg.pinv(2 * criterion.slope * criterion.up[chosen])
    down = _double(block.down).clone()
    down[:, chosen] += change
    if float((2 * criterion.slope * change @ criterion.up[chosen] - missing).norm()) > 1e-9 * float(missing.norm()):
        raise ValueError(f"units must have rows that span the row space of what is missing, got {units}")
    planted = MLP(block.up.detach(), down.to(block.down.dtype), block.activation, block.up_bias, block.down_bias)
    return Residual(planted, skip)


# ---------------------------------------------------------------------------------------------
# Degenerate blocks (X-DEG) and the width of a skip-free copy (X-WIDTH)


@dataclass(frozen=True)
class _Reduced:
    """Σ_l e_l σ(v_l·(x,1)) + Rx + const: one unit for each line whose even part does not cancel."""

    slope: float
    down: Tensor  # the e_l as columns
    up: Tensor
    up_bias: Tensor
    remainder: Tensor  # R
    size: float  # of the terms that R was summed from

    def bend(self, flips: Tensor) -> Tensor:
        """R after flipping the given lines."""
        return self.remainder + 2 * self.slope * (self.down * flips) @ self.up


@dataclass(frozen=True)
class _Realisation:
    """R is what the flips, the doubled lines (each free in its linear part) and new pairs can make."""

    flips: Tensor
    doubled: tuple[int, ...]
    pairs: int


def _reduce(residual: Residual, lines: Tensor, representatives: list[int], live: Tensor) -> _Reduced:
    block, slope = residual.block, residual.block.activation.odd_slope
    up, down = _double(block.up), _double(block.down)
    bias = torch.zeros_like(up[:, 0]) if block.up_bias is None else _double(block.up_bias)
    rows = torch.cat([up, bias[:, None]], 1)
    rep = rows[representatives]
    along = (rows * rep[lines]).sum(1) / (rep[lines] ** 2).sum(1).clamp_min(1e-300)  # row_i = along_i · representative
    scaled = down * along.abs() * live if block.activation.degree == 1 else down * live
    even = torch.zeros(len(down), len(rep), dtype=down.dtype).index_add_(1, lines, scaled)
    weight = torch.zeros(len(rep), dtype=down.dtype).index_add_(0, lines, scaled.norm(dim=0))
    kept = even.norm(dim=0) > ROUNDING * weight
    even, rep = even[:, kept], rep[kept]
    linear = _double(residual.skip_matrix()) + slope * (down * live) @ up
    size = float(_double(residual.skip_matrix()).norm() + 2 * abs(slope) * (down.norm(dim=0) * up.norm(dim=1)).sum())
    return _Reduced(slope, even, rep[:, :-1], rep[:, -1], linear - slope * even @ rep[:, :-1], size)


def _realise(reduced: _Reduced, spare: int) -> tuple[_Realisation | None, float]:
    """Can R be made with ``spare`` extra units?  A realisation, or the distance by which all fail.

    A doubled line costs one unit and a new pair two (X-DEG).  Returns (None, 0) for undecided.
    """
    p, d = reduced.down.shape[1], len(reduced.remainder)
    noise = ROUNDING * reduced.size
    options = [(min(p, spare - 2 * pairs), pairs) for pairs in range(min(spare // 2, d) + 1)]
    # cheap and constructive: no flips, the best-conditioned rows doubled
    pivots = scipy.linalg.qr(_directions(reduced.up).numpy().T, mode="r", pivoting=True)[1] if p else np.array([], int)
    for doubled, pairs in options:
        chosen = tuple(int(i) for i in pivots[:doubled])
        if _distance(reduced, torch.zeros(1, p, dtype=torch.float64), chosen, pairs).item() <= noise:
            return _Realisation(torch.zeros(p, dtype=torch.float64), chosen, pairs), 0.0
    # flips and projections change R by rank p at most, so every distance is at least this (Weyl)
    rank = p + options[-1][1]
    floor = float(torch.linalg.svdvals(reduced.remainder)[rank]) - 4 * noise if rank < d else 0.0
    if floor > 0 or p > ENUMERATED:
        return None, max(floor, 0.0)
    nearest = math.inf
    for doubled, pairs in options:
        for chosen in itertools.combinations(range(p), doubled):
            free = [i for i in range(p) if i not in chosen]
            flips = torch.zeros(2 ** len(free), p, dtype=torch.float64)
            flips[:, free] = torch.tensor(list(itertools.product((0.0, 1.0), repeat=len(free))), dtype=torch.float64)
            distances = _distance(reduced, flips, chosen, pairs)
            best = int(distances.argmin())
            if distances[best] <= noise:
                return _Realisation(flips[best], chosen, pairs), 0.0
            nearest = min(nearest, float(distances[best]) - 4 * noise / _independence(reduced.up[list(chosen)]))
    return None, max(nearest, 0.0)


def _distance(reduced: _Reduced, flips: Tensor, doubled: tuple[int, ...], pairs: int) -> Tensor:
    """Spectral distance of R, flipped and with the doubled rows projected out, to rank ``pairs``; one per set."""
    d = len(reduced.remainder)
    if pairs >= d:
        return torch.zeros(len(flips), dtype=torch.float64)
    bent = reduced.remainder + 2 * reduced.slope * torch.einsum("sl,dl,lk->sdk", flips, reduced.down, reduced.up)
    return torch.linalg.svdvals(bent @ _complement(reduced.up[list(doubled)]))[:, pairs]


def _complement(rows: Tensor) -> Tensor:
    """The orthogonal projector onto what is orthogonal to ``rows``."""
    rows, eye = _directions(rows), torch.eye(rows.shape[1], dtype=rows.dtype)
    return eye - torch.linalg.pinv(rows, rtol=ROUNDING) @ rows if len(rows) else eye


def _directions(rows: Tensor) -> Tensor:
    return rows / rows.norm(dim=1, keepdim=True)


def _independence(rows: Tensor) -> float:
    """The least nonzero singular value of the rows' directions; the projector's rounding grows with its inverse."""
    values = torch.linalg.svdvals(_directions(rows))
    return float(values[values > ROUNDING * values[0]].min()) if len(rows) else 1.0


def _build(reduced: _Reduced, found: _Realisation, residual: Residual) -> MLP:
    """The residual-free block of a realisation, padded with dead units to the block's width."""
    block, slope, d = residual.block, reduced.slope, residual.dim_in
    doubled, sign = list(found.doubled), 1 - 2 * found.flips
    bent = reduced.bend(found.flips)
    free = bent @ torch.linalg.pinv(_directions(reduced.up[doubled]), rtol=ROUNDING) / reduced.up[doubled].norm(dim=1)
    left, values, right = torch.linalg.svd(bent @ _complement(reduced.up[doubled]))
    pair_down = left[:, : found.pairs] * values[: found.pairs] / (2 * slope)
    pair_up = right[: found.pairs]
    # e σ(z) + linear part f z: (e + f/2c) σ(z) - (f/2c) σ(-z)
    single_down = reduced.down.clone()
    single_down[:, doubled] += free / (2 * slope)
    up = torch.cat([reduced.up * sign[:, None], -reduced.up[doubled], pair_up, -pair_up])
    bias = torch.cat([reduced.up_bias * sign, -reduced.up_bias[doubled], torch.zeros(2 * found.pairs, dtype=up.dtype)])
    down = torch.cat([single_down, -free / (2 * slope), pair_down, -pair_down], 1)
    padding = max(block.width - len(up), 0)
    up = torch.cat([up, torch.zeros(padding, d, dtype=up.dtype)])
    bias = torch.cat([bias, torch.zeros(padding, dtype=up.dtype)])
    down = torch.cat([down, torch.zeros(d, padding, dtype=up.dtype)], 1)
    down_bias = None
    if block.down_bias is not None:
        down_bias = _double(block.down_bias)
        if block.up_bias is not None:
            dead = _double(block.up).norm(dim=1) == 0
            old = _double(block.up_bias)
            constants = _double(block.down) @ torch.where(dead, block.activation(old), slope * old)
            down_bias = down_bias + constants - slope * down @ bias
    cast = lambda t: t.to(block.up.dtype)  # noqa: E731
    return MLP(
        cast(up),
        cast(down),
        block.activation,
        None if block.up_bias is None else cast(bias),
        None if down_bias is None else cast(down_bias),
    )


def _decide_degenerate(residual: Residual, lines: Tensor, representatives: list[int], live: Tensor) -> Absorption:
    """Dead, zero, duplicated or opposite units: collect them by line and spend the spare units (X-DEG)."""
    block = residual.block
    if not _constants_fit(block):
        return Absorption(None, "degenerate")  # the constants would have to be matched as well
    reduced = _reduce(residual, lines, representatives, live)
    found, margin = _realise(reduced, block.width - reduced.down.shape[1])
    if found is None and margin == 0 and reduced.down.shape[1] > ENUMERATED:
        criterion = _Criterion(reduced.slope, reduced.down, reduced.up, reduced.remainder)
        flips = _solve(criterion)[0]
        if flips is not None:
            found = _Realisation(flips.to(torch.float64), (), 0)
    if found is not None:
        return Absorption(True, "degenerate", network=_build(reduced, found, residual))
    return Absorption(False if margin > 0 else None, "degenerate", margin=margin)


def minimal_width(residual: Residual) -> int:
    """The least width of a residual-free block of the same activation equal to the residual block (X-WIDTH, new).

    For almost all weights this is d + max(m, d).  Up to 10 lines the true value of the given
    weights is found by enumeration; beyond that the almost-sure value is returned and a
    RuntimeWarning says that the null set was not excluded for these weights.

    Raises ValueError if no width works, or for kinds of block that the theorem does not cover.
    """
    _require_residual(residual)
    block = residual.block
    if not isinstance(block, MLP) or block.activation.odd_slope in (None, 0):
        raise ValueError(
            f"residual.block must be an MLP whose activation has a nonzero odd slope, got "
            f"{type(block).__name__} with {block.activation.name}"
        )
    if not _constants_fit(block):
        raise ValueError("residual.block must have down_bias where units have constant parts: these need a place")
    if _may_depend(block):
        raise ValueError("residual.block must not have parallel hardswish units with biases")
    reduced = _reduce(residual, *_lines(block), _live(block))
    lines, d = reduced.down.shape[1], residual.dim_in
    for extra in range(2 * d + 1):  # 2d extra units, d new pairs, make any linear map
        found, margin = _realise(reduced, extra)
        if found is not None:
            return max(lines + extra, 1)
        if margin == 0:
            break
    warnings.warn(
        f"minimal_width: the {lines} lines of residual.block are too many to enumerate or too close to a special "
        "position; returning the value that holds for almost all weights",
        RuntimeWarning,
        stacklevel=2,
    )
    return d + max(lines, d)
