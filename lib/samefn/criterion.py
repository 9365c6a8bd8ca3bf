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

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from .networks import MLP, GatedMLP, Residual

ROUNDING = 2.0**-40  # a residual this small beside its terms is float64 noise of sums of a few thousand products
INTEGER_PROGRAM = 200_000  # entries of the constraint matrix up to which integer programming is tried
NEAR_SOLUTIONS = 64  # sets that solve the criterion nearly, and are excluded one by one, before giving up
SECONDS = 60.0  # for all integer programs of one block


def double(tensor: Tensor) -> Tensor:
    return tensor.detach().to(torch.float64)


def require_residual(residual: Residual) -> None:
    if not isinstance(residual, Residual):
        raise TypeError(f"residual must be a Residual, got {type(residual).__name__}")


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


def criterion_of(residual: Residual) -> Criterion:
    require_residual(residual)
    block, slope = residual.block, odd_slope_of(residual.block)
    if slope is None:
        raise ValueError(f"residual.block has no submatrix criterion: {block.activation.name} has no odd slope")
    up, target = double(block.up), double(residual.skip_matrix())
    if isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None:
        up = torch.cat([up, double(block.up_bias)[:, None]], 1)
        target = torch.cat([target, torch.zeros_like(target[:, :1])], 1)
    return Criterion(slope, double(block.down), up, target)


def certified_bound(residual: Residual, y: Float[Tensor, "d d"]) -> float:
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


def subset_distances(residual: Residual) -> Float[Tensor, "2**m"]:
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


def solve(criterion: Criterion) -> tuple[Tensor | None, float, Tensor | None, str]:
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


def _relax(criterion: Criterion) -> tuple[Tensor | None, Iterable[Tensor]]:
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


def _pinning(criterion: Criterion, factor: Tensor, unit: int) -> Iterator[Tensor]:
    """Y with ⟨Y, 2c a_j u_jᵀ⟩ = [j = unit]: it fixes the unit's coefficient, which then must be 0 or 1."""
    sizes = criterion.sizes()
    basis = torch.zeros_like(sizes)
    basis[unit] = 1 / sizes[unit]
    weights = torch.cholesky_solve(basis[:, None], factor).flatten() / sizes
    yield criterion.combine(weights) - criterion.target


def _columns(criterion: Criterion) -> np.ndarray:
    """The matrices 2c a_i u_iᵀ as columns, shape (entries of A, m)."""
    rank_one = torch.einsum("di,ik->dki", criterion.down, criterion.up)
    return (2 * criterion.slope * rank_one).flatten(0, 1).cpu().numpy()


def _integer_program(criterion: Criterion) -> tuple[Tensor | None, float, Tensor | None, str]:
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
    deadline = time.monotonic() + SECONDS
    for _ in range(NEAR_SOLUTIONS):
        found = scipy.optimize.milp(
            np.zeros(m),
            integrality=np.ones(m),
            bounds=scipy.optimize.Bounds(0, 1),
            constraints=constraints,
            options={"time_limit": max(deadline - time.monotonic(), 1.0)},
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
