"""The submatrix criterion A + 2c Σ_{i∈S} a_i u_iᵀ = 0: solve it for S, or certify that no S solves it.

Three readings of a floating-point residual are kept apart: at most ``ROUNDING`` of the size of
the terms counts as zero, a certified lower bound above that counts as nonzero, and anything
between is left undecided.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..networks import MLP, GatedMLP, Residual

# a residual this small beside its terms is float64 noise of sums of a few thousand products
ROUNDING = 2.0**-40
INTEGER_PROGRAM = 200_000  # entries of the constraint matrix up to which integer programming is tried
SOLVER = 1e-6  # the integer program meets integrality and each row to this, relative to entries of at most 1
NEAR_SOLUTIONS = 64  # sets that solve the criterion nearly, and are excluded one by one, before giving up
SECONDS = 60.0  # for all integer programs of one block


def double(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64)


def require_residual(residual: Residual) -> None:
    if not isinstance(residual, Residual):
        raise TypeError(f"residual must be a Residual, got {type(residual).__name__}")


def require_units(block: MLP | GatedMLP, units: Iterable[int]) -> list[int]:
    """The units as a list; ValueError if the block does not have one of them."""
    chosen = list(units)
    if any(not 0 <= unit < block.width for unit in chosen):
        raise ValueError(f"units must lie in 0..{block.width - 1}, got {tuple(chosen)}")
    return chosen


def odd_slope_of(block: MLP | GatedMLP) -> float | None:
    """c, where flipping a unit changes the block by a linear map only; otherwise None."""
    if isinstance(block, GatedMLP):
        # sigmoid(z) + sigmoid(-z) = 1, so (w, u) -> (-w, -u) changes a unit by a (u·x): 2c = 1 (X-GLU)
        return 0.5 if block.activation.name == "sigmoid" else None
    return block.activation.odd_slope


@dataclass(frozen=True)
class Criterion:
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

    def combine(self, coefficients: Float[Tensor, "... m"]) -> Float[Tensor, "... d k"]:
        """A + 2c Σ coefficients_i a_i u_iᵀ, for one vector of coefficients or a batch of them."""
        return self.target + 2 * self.slope * (self.down * coefficients[..., None, :]) @ self.up

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


def criterion_of(residual: Residual) -> Criterion:
    """The criterion of a residual block, in float64.

    Raises TypeError for anything but a Residual, ValueError if flipping a unit of its block changes more
    than the linear part.
    """
    require_residual(residual)
    block, slope = residual.block, odd_slope_of(residual.block)
    if slope is None:
        raise ValueError(
            f"residual.block has no submatrix criterion: {block.activation.name} has no odd slope"
        )
    up, target = double(block.up), double(residual.skip_matrix())
    if isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None:
        up = torch.cat([up, double(block.up_bias)[:, None]], 1)
        target = torch.cat([target, torch.zeros_like(target[:, :1])], 1)
    return Criterion(slope, double(block.down), up, target)


def certified_bound(residual: Residual, y: Float[Tensor, "d k"]) -> float:
    """The lower bound of ‖A + 2c P_S‖_F over all S that the matrix ``y`` certifies (X-CERT, new).

    If ⟨Y, A⟩ + Σ min(0, 2c a_iᵀ Y u_i) > 0 then ⟨Y, A + 2c P_S⟩ is at least that for every S, and
    so is ‖Y‖_F ‖A + 2c P_S‖_F.  Returns 0 where ``y`` proves nothing.

    Raises TypeError if ``y`` is not a tensor, ValueError if it is not finite or not d×d (d×(d+1)
    where the block has biases but no output bias), or if the block has no submatrix criterion.
    """
    criterion = criterion_of(residual)
    if not isinstance(y, Tensor):
        raise TypeError(f"y must be a torch.Tensor, got {type(y).__name__}")
    if not torch.isfinite(y).all():
        raise ValueError("y must be finite, got NaN or infinity")
    if y.shape != criterion.target.shape:
        raise ValueError(f"y must have shape {tuple(criterion.target.shape)}, got {tuple(y.shape)}")
    return criterion.bound(double(y))


def trace_test(residual: Residual) -> float:
    """⟨A, A⟩ + Σ min(0, 2c a_iᵀ A u_i); for A = I and c > 0, d - 2c Σ max(0, -a_i·u_i).

    A positive value proves that no set S satisfies the criterion, hence that a nondegenerate
    block cannot absorb its skip (X-CERT, new).  Raises ValueError if there is no criterion.
    """
    criterion = criterion_of(residual)
    return float((criterion.target**2).sum() + criterion.inner(criterion.target).clamp(max=0).sum())


def subset_distances(residual: Residual) -> Float[Tensor, "sets"]:
    """‖A + 2c P_S‖_F for all 2^m sets S, by brute force; entry k belongs to S = {i : bit i of k is 1}.

    Raises ValueError for more than 20 units, or if there is no criterion.
    """
    criterion = criterion_of(residual)
    if residual.block.width > 20:
        raise ValueError(f"residual must have at most 20 units to try all sets, got {residual.block.width}")
    sums = criterion.target[None]
    for a, u in zip(criterion.down.T, criterion.up):
        sums = torch.cat([sums, sums + 2 * criterion.slope * torch.outer(a, u)])
    return sums.flatten(1).norm(dim=1)


@dataclass(frozen=True)
class Found:
    """A set of units that satisfies the criterion, as a mask of shape (m,)."""

    flips: Bool[Tensor, "m"]


@dataclass(frozen=True)
class Refuted:
    """No set comes nearer than ``margin`` > 0; ``certificate`` is a matrix Y that proves it, or None."""

    margin: float
    certificate: Tensor | None = None


@dataclass(frozen=True)
class Undecided:
    """Some set is too near to call ("precision"), or the search was given up ("search")."""

    reason: Literal["precision", "search"]


def solve(criterion: Criterion) -> Found | Refuted | Undecided:
    """Find a set S that satisfies the criterion, or refute all of them.

    Where the matrices a_i u_iᵀ are independent one linear system decides; otherwise certificates are
    tried, and then an integer program.
    """
    flips, duals = _relax(criterion)
    if flips is not None:
        return Found(flips)
    best = Refuted(0.0)
    for y in duals:
        best = max(best, Refuted(criterion.bound(y), y), key=lambda refuted: refuted.margin)
        # the target's own margin is often poor
        if best.margin > criterion.noise() and y is not criterion.target:
            break
    return best if best.margin > criterion.noise() else _integer_program(criterion)


def _relax(criterion: Criterion) -> tuple[Tensor | None, Iterable[Tensor]]:
    """Drop "0 or 1" and solve; the rounded solution if it satisfies the criterion, and dual matrices Y."""
    if len(criterion.sizes()) > criterion.target.numel():
        return None, _box_duals(criterion)
    factor = _gram_factor(criterion)
    if factor is None:
        return None, [criterion.target]
    # independent a_i u_iᵀ: the real solution is unique, so rounding it is a full search
    coefficients, residual = _least_squares(criterion, factor)
    flips = coefficients > 0.5
    if criterion.holds(flips):
        return flips, ()
    fraction = (coefficients - flips.to(coefficients.dtype)).abs() * criterion.sizes()
    pinned = _pinning(criterion, factor, int(fraction.argmax()))
    return None, itertools.chain([criterion.target, residual], pinned)


def _box_duals(criterion: Criterion) -> list[Tensor]:
    """The target, and what is left of it after the best coefficients in [0, 1]."""
    columns = _columns(criterion)
    if columns is None:
        return [criterion.target]
    box = scipy.optimize.lsq_linear(columns, -criterion.target.flatten().cpu().numpy(), (0, 1), tol=1e-14)
    return [criterion.target, criterion.combine(torch.from_numpy(box.x).to(criterion.target))]


def _gram_factor(criterion: Criterion) -> Tensor | None:
    """Cholesky factor of the Gram matrix of the 2c a_i u_iᵀ, scaled to norm 1; None if they are dependent."""
    sizes = criterion.sizes()
    gram = criterion.down.T @ criterion.down
    gram.mul_(criterion.up @ criterion.up.T).mul_(4 * criterion.slope**2)
    gram.div_(sizes[:, None]).div_(sizes[None, :])
    factor, info = torch.linalg.cholesky_ex(gram)
    return factor if int(info) == 0 else None


def _least_squares(criterion: Criterion, factor: Tensor) -> tuple[Tensor, Tensor]:
    """The coefficients that make A + 2c Σ coefficients_i a_i u_iᵀ least, and that matrix."""
    sizes = criterion.sizes()
    coefficients, residual = torch.zeros_like(sizes), criterion.target
    # the second pass is iterative refinement: the inner products see the residual, not the Gram matrix
    for _ in range(2):
        gradient = (criterion.inner(residual) / sizes)[:, None]
        coefficients = coefficients - torch.cholesky_solve(gradient, factor).flatten() / sizes
        residual = criterion.combine(coefficients)
    return coefficients, residual


def _pinning(criterion: Criterion, factor: Tensor, unit: int) -> Iterator[Tensor]:
    """Y with ⟨Y, 2c a_j u_jᵀ⟩ = [j = unit]: it fixes the unit's coefficient, which then must be 0 or 1."""
    sizes = criterion.sizes()
    basis = torch.zeros_like(sizes)
    basis[unit] = 1 / sizes[unit]
    weights = torch.cholesky_solve(basis[:, None], factor).flatten() / sizes
    yield criterion.combine(weights) - criterion.target


def _columns(criterion: Criterion) -> np.ndarray | None:
    """The matrices 2c a_i u_iᵀ as columns, shape (entries of A, m); None if they are too many to search."""
    if criterion.target.numel() * len(criterion.up) > INTEGER_PROGRAM:
        return None
    rank_one = torch.einsum("di,ik->dki", criterion.down, criterion.up)
    return (2 * criterion.slope * rank_one).flatten(0, 1).cpu().numpy()


def _integer_program(criterion: Criterion) -> Found | Refuted | Undecided:
    """Search for c in {0,1}^m within a slack that covers the solver's own tolerances.

    Sets inside the slack that fail the exact test are excluded one at a time; once none is left,
    every set is off by at least the slack or by what the excluded ones measured.
    """
    columns = _columns(criterion)
    if columns is None:
        return Undecided("search")
    m, target = columns.shape[1], -criterion.target.flatten().cpu().numpy()
    scale = float(max(np.abs(columns).max(), np.abs(target).max()))
    slack = SOLVER * (m + 10)
    within = scipy.optimize.LinearConstraint(columns / scale, target / scale - slack, target / scale + slack)
    constraints, margin = [within], (slack - SOLVER * (m + 2)) * scale
    deadline = time.monotonic() + SECONDS
    for _ in range(NEAR_SOLUTIONS):
        found = _feasible(m, constraints, deadline - time.monotonic())
        if found.status == 2:
            # infeasible; at most INTEGER_PROGRAM entries keep the noise below the slack's margin
            return Refuted(margin)
        if found.x is None:
            return Undecided("search")
        chosen = found.x > 0.5
        flips = torch.from_numpy(chosen).to(criterion.down.device)
        if criterion.holds(flips):
            return Found(flips)
        margin = min(margin, float(criterion.combine(flips.to(criterion.target.dtype)).norm()))
        if margin <= criterion.noise():
            return Undecided("precision")
        others = scipy.optimize.LinearConstraint(np.where(chosen, -1.0, 1.0), 1 - float(chosen.sum()), np.inf)
        constraints.append(others)
    return Undecided("search")


def _feasible(
    m: int, constraints: list[scipy.optimize.LinearConstraint], seconds: float
) -> scipy.optimize.OptimizeResult:
    """Any c in {0,1}^m that satisfies the constraints: a program without objective."""
    return scipy.optimize.milp(
        np.zeros(m),
        integrality=np.ones(m),
        bounds=scipy.optimize.Bounds(0, 1),
        constraints=constraints,
        options={"time_limit": max(seconds, 1.0)},
    )
