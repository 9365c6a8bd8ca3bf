"""The submatrix criterion A + 2c Σ_{i∈S} a_i u_iᵀ = 0: solve it for S, or certify that no S solves it.

Everything here is computed on weights that were first brought to sizes near 1 by exact powers of two.
Three readings of a residual are kept apart.  A set is *found* if its residual, computed as if without
rounding, is no larger than one rounding of each weight explains.  It is *refuted* if the residual is larger
than ``SOLVED`` times that, by a lower bound from which all rounding errors have been subtracted.  Between
the two may lie what a numerical solver, asked for weights that satisfy the criterion, has returned:
such sets are left undecided.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import index
from typing import Literal, SupportsIndex

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from ..arguments import Count
from ..networks import MLP, GatedMLP, Residual

__all__ = [
    "Criterion",
    "Found",
    "Refuted",
    "Undecided",
    "certified_bound",
    "criterion_of",
    "solve",
    "subset_distances",
    "subset_sums",
    "trace_test",
]

EPS = 2.0**-52
SOLVED = 8  # times what one rounding of each weight explains: residuals that numerical solvers leave
RANGE = 2.0**-450  # what factors are of the root of the largest product; products of less would underflow
BOX = 200_000  # entries of the rank-one matrices up to which the best coefficients in [0, 1] are sought
HALVED = 40  # units up to which all sets are searched, as two halves of 2^20
CANDIDATES = 2**16  # sets within the window that such a search looks at


# --- blocks and their weights ---------------------------------------------------------------------


def double(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", torch.float64)


def rebuilt(block: MLP | GatedMLP, **changed: Tensor | None) -> MLP | GatedMLP:
    """A block of the same kind, detached, with some weights changed."""
    gated = isinstance(block, GatedMLP)
    names = ("gate", "up", "down", "gate_bias") if gated else ("up", "down", "up_bias", "down_bias")
    kept = {name: getattr(block, name) for name in names}
    kept = {name: tensor if tensor is None else tensor.detach() for name, tensor in kept.items()}
    return type(block)(activation=block.activation, **{**kept, **changed})


def in_float64(residual: Residual) -> Residual:
    """A copy in float64, on the CPU, which holds the weights of every narrower dtype exactly."""
    skip = None if residual.skip is None else double(residual.skip)
    weights = {name: double(weight) for name, weight in residual.block.named_parameters()}
    return Residual(rebuilt(residual.block, **weights), skip)


def narrowed(block: MLP | GatedMLP, like: Tensor) -> MLP | GatedMLP:
    """The float64 block on the device of ``like``, and in its dtype where that holds the block exactly."""
    narrow = {name: weight.detach().to(like) for name, weight in block.named_parameters()}
    exact = all(torch.equal(double(narrow[name]), weight) for name, weight in block.named_parameters())
    wide = {name: weight.detach().to(like.device) for name, weight in block.named_parameters()}
    return rebuilt(block, **(narrow if exact else wide))


def require_units(block: MLP | GatedMLP, units: Iterable[SupportsIndex]) -> list[int]:
    """The units as a list of numbers.

    Raises TypeError for what is not an integer (a mask of booleans too), ValueError for a unit that the
    block does not have, or that is named twice.
    """
    chosen = units.tolist() if isinstance(units, (Tensor, np.ndarray)) else list(units)
    for unit in chosen:
        if isinstance(unit, (bool, np.bool_)) or not isinstance(unit, (int, np.integer)):
            raise TypeError(f"units must be integers, the numbers of units, got {unit!r}")
    numbers = list(map(index, chosen))
    if any(not 0 <= unit < block.width for unit in numbers):
        raise ValueError(f"units must lie in 0..{block.width - 1}, got {tuple(numbers)}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"units must not name a unit twice, got {tuple(numbers)}")
    return numbers


def odd_slope_of(block: MLP | GatedMLP) -> float | None:
    """c, where flipping a unit changes the block by a linear map only; otherwise None."""
    if isinstance(block, GatedMLP):
        # sigmoid(z) + sigmoid(-z) = 1, so (w, b, u) -> (-w, -b, -u) changes a unit by a (u·x): 2c = 1 (X-GLU)
        return 0.5 if block.activation.name == "sigmoid" else None
    return block.activation.odd_slope


# --- arithmetic -----------------------------------------------------------------------------------


def accurate_product(
    start: Float[Tensor, "d k"], down: Float[Tensor, "d m"], up: Float[Tensor, "m k"]
) -> Float[Tensor, "d k"]:
    """start + down @ up, rounded once however much of it cancels: entries are off by EPS of themselves.

    Both factors are cut into slices of so few bits that products of slices are exact in float64, in
    whatever order they are summed; the slices' products are added up in three-fold precision.
    """
    high, middle, low = start, torch.zeros_like(start), torch.zeros_like(start)
    bits = (53 - math.ceil(math.log2(max(down.shape[1], 2)))) // 2
    right = list(_slices(up, 0, bits))
    for a, b in itertools.product(_slices(down, 1, bits), right):
        high, rest = _two_sum(high, a @ b)
        middle, rest = _two_sum(middle, rest)
        low = low + rest
    return high + (middle + low)


def _slices(x: Tensor, dim: int, bits: int) -> Iterator[Tensor]:
    """Matrices that add up to x exactly, of ``bits`` bits in each row or column."""
    while bool(x.any()):
        unit = ldexp(torch.ones_like(x.amax(dim, keepdim=True)), exponents(x, dim) - bits)
        part = (x / unit).round() * unit
        yield part
        x = x - part


def _two_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The rounded sum, and what rounding took from it (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def exponents(x: Tensor, dim: int) -> Tensor:
    """e with max |x| in [2^(e-1), 2^e) along ``dim``, which is kept; 0 for zeros."""
    return torch.frexp(x.abs().amax(dim, keepdim=True)).exponent


def ldexp(x: Tensor, exponent: Tensor | int) -> Tensor:
    """x · 2^exponent, exact where it is a float64; ``torch.ldexp`` forms 2^exponent, which may not be one."""
    with np.errstate(over="ignore", under="ignore"):
        return torch.from_numpy(np.asarray(np.ldexp(x.numpy(), np.asarray(exponent))))


def frobenius(x: Tensor) -> float:
    """‖x‖_F, although the squares may underflow."""
    exponent = exponents(x.reshape(1, -1), 1)
    return float(ldexp(ldexp(x, -exponent).norm(), exponent)) if x.numel() else 0.0


def positive_factor(gram: Float[Tensor, "m m"], terms: Count) -> tuple[Tensor, float] | None:
    """C and μ with CCᵀ ≤ Γ - μ/2 as quadratic forms, or None; Γ is a Gram matrix of diagonal at most 1.

    ``terms`` is how many products make an entry of ``gram``.  The rounding of entries and that of the
    factorisation (Higham, Accuracy and Stability, Theorem 10.3) are at most μ/4 together, so what holds
    of the factor holds of Γ without rounding: it is positive definite.
    """
    size = len(gram)
    mu = 4 * size * (size + terms + 4) * EPS
    factor, info = torch.linalg.cholesky_ex(gram - mu * torch.eye(size, dtype=gram.dtype))
    return (factor, mu) if int(info) == 0 else None


def exact_pivots(matrix: Float[Tensor, "n k"]) -> list[int]:
    """Columns that make a basis of all of them, by elimination in rational numbers; for small matrices."""
    left, pivots = [[Fraction(x) for x in row] for row in matrix.tolist()], []
    for column in range(matrix.shape[1]):
        pivot = next((row for row in left if row[column]), None)
        if pivot is not None:
            pivots.append(column)
            left.remove(pivot)
            left = [[x - row[column] / pivot[column] * y for x, y in zip(row, pivot)] for row in left]
    return pivots


# --- the criterion --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Criterion:
    """A + 2c Σ_{i∈S} a_i u_iᵀ = 0, over 2^exponent: 2c a_i as columns of ``down``, u_i as rows of ``up``.

    Where biases exist but no output bias, the rows carry the bias as a last column and A a zero one,
    so that the constant 2c Σ a_i b_i has to vanish too (X-BIAS).
    ``shift``: u_i is 2^shift_i times its row of ``up``.  ``noise``: by how much, in the Frobenius norm,
    the combinations may be off because the numbers given here were themselves computed.

    >>> from samefn.skip.criterion import criterion_of
    >>> from samefn.skip.planted import running_example
    >>> criterion = criterion_of(running_example())
    >>> criterion.combine(torch.tensor([1.0, 1.0, 1.0, 0.0])).tolist()  # S = {0, 1, 2}
    [[0.0, 0.0], [0.0, 0.0]]
    """

    down: Tensor
    up: Tensor
    target: Tensor
    exponent: int = 0
    shift: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int32))
    noise: float = 0.0

    def sizes(self) -> Tensor:
        """‖2c a_i u_iᵀ‖_F for every unit."""
        return self.down.norm(dim=0) * self.up.norm(dim=1)

    def combine(self, coefficients: Float[Tensor, "... m"]) -> Float[Tensor, "... d k"]:
        """A + 2c Σ coefficients_i a_i u_iᵀ, for one vector of coefficients or a batch of them."""
        return self.target + (self.down * coefficients[..., None, :]) @ self.up

    def inner(self, y: Tensor) -> Tensor:
        """⟨Y, 2c a_i u_iᵀ⟩ for every unit."""
        return ((y.T @ self.down).T * self.up).sum(1)

    def apart(self, flips: Bool[Tensor, "m"]) -> float:
        """A lower bound of ‖A + 2c P_S‖_F, computed as if without rounding; 0 for what one rounding explains.

        That is one of every weight, of 2c and of every sum of the products.  Negative where a few do.
        """
        total = frobenius(self.target) + float(self.sizes()[flips].sum())
        explained = (sum(self.target.shape) + int(flips.sum())) * EPS * total + self.noise
        rough = frobenius(self.combine(flips.to(self.down)))
        if rough > 2 * self.rounding():
            return rough - self.rounding()
        if rough <= explained / 2:
            return 0.0  # a network is judged again by what it is, if one is returned
        distance = frobenius(accurate_product(self.target, self.down[:, flips], self.up[flips]))
        if distance <= SOLVED * explained:
            return 0.0 if distance <= explained else -1.0
        return distance * (1 - self.target.numel() * EPS) - 2 * EPS * total - self.noise

    def rounding(self) -> float:
        """A bound of the rounding errors of ⟨Y, A + 2c P_S⟩ as computed here, for ‖Y‖_F = 1 and any S.

        It is at least what solvers leave, so that no set which may be due to them is refuted.
        """
        terms = SOLVED * (sum(self.target.shape) + len(self.up) + 8)
        return terms * EPS * float(self.target.norm() + self.sizes().sum()) + self.noise

    def least(self, y: Tensor) -> float:
        """A lower bound of ⟨Y, A + 2c P_S⟩ over all S, rounding accounted for."""
        return self._interval(self.inner(y), float((y * self.target).sum()), float(y.norm()))[0]

    def bound(self, y: Tensor) -> float:
        """A lower bound of ‖A + 2c P_S‖_F over all S, rounding accounted for (X-CERT).

        ⟨Y, A + 2c P_S⟩ lies in an interval that does not depend on S once the unit with the
        largest coefficient is decided; Cauchy–Schwarz turns its distance from 0 into a bound.
        """
        norm, weights, start = float(y.norm()), self.inner(y), float((y * self.target).sum())
        if norm == 0:
            return 0.0
        order = weights.abs().argsort()
        top, others = weights[order[-1:]], weights[order[:-1]]
        shifts = (0.0, float(top.sum()))
        intervals = [self._interval(others, start + shift, norm) for shift in shifts]
        return max(min(max(low, -high) for low, high in intervals), 0.0) / norm * (1 - 8 * EPS)

    def _interval(self, weights: Tensor, start: float, norm: float) -> tuple[float, float]:
        """Where ``start`` and some of the weights add up to, rounding accounted for."""
        error = norm * self.rounding()
        low, high = float(weights.clamp(max=0).sum()), float(weights.clamp(min=0).sum())
        return start + low - error, start + high + error

    def unscaled(self, value: float, degree: int = 1) -> float:
        """The number of which ``value`` is the 2^(degree·exponent)-th part, as far as a float can be."""
        scaled = ldexp(torch.tensor(value, dtype=torch.float64), degree * self.exponent)
        return min(float(scaled), torch.finfo(torch.float64).max)


def normalised(
    factors: Float[Tensor, "m"],
    down: Float[Tensor, "d m"],
    up: Float[Tensor, "m k"],
    target: Float[Tensor, "d k"],
) -> Criterion:
    """The criterion of the matrices factor_i a_i u_iᵀ, all numbers brought near 1 by powers of two.

    Each u_i and a_i is divided by a power of its own, such that all products and the target are divided
    by one in common.  Where that makes an entry so small that its products would underflow, the
    criterion is noisy.
    """
    mantissa, doubled = torch.frexp(factors)
    of_down, of_up = exponents(down, 0)[0], exponents(up, 1)[:, 0]
    live = down.any(dim=0) & up.any(dim=1)
    product = of_down + of_up + doubled
    in_common = [int(exponents(target.reshape(1, -1), 1))] if bool(target.any()) else []
    exponent = max(in_common + product[live].tolist(), default=0)
    less = torch.where(live, product - exponent, 0)
    half = less // 2
    # the factors are powers of two but for leaky ReLU, where they were rounded before
    scaled_down = ldexp(down, (less - half - of_down)[None]) * mantissa
    scaled_up, scaled_target = ldexp(up, (half - of_up)[:, None]), ldexp(target, -exponent)
    criterion = Criterion(scaled_down, scaled_up, scaled_target, exponent, of_up - half)
    parts = (scaled_down[:, live] / RANGE, scaled_up[live] / RANGE, scaled_target / RANGE**2)
    given = (down[:, live], up[live], target)
    if any(bool(((part.abs() < 1) & (old != 0)).any()) for part, old in zip(parts, given)):
        criterion = replace(criterion, noise=criterion.rounding())
    return criterion


def criterion_of(residual: Residual) -> Criterion:
    """The criterion of a residual block, in float64.

    Raises TypeError for anything but a Residual, ValueError if flipping a unit of its block changes more
    than the linear part.

    >>> from samefn.skip.criterion import criterion_of
    >>> from samefn.skip.planted import running_example
    >>> criterion = criterion_of(running_example())
    >>> (criterion.target * 2.0**criterion.exponent).tolist()  # A, the skip
    [[1.0, 0.0], [0.0, 1.0]]
    """
    block, slope = residual.block, odd_slope_of(residual.block)
    if slope is None:
        raise ValueError(
            f"residual.block has no submatrix criterion: {block.activation.name} has no odd slope"
        )
    up, target = double(block.up), double(residual.skip_matrix())
    if isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None:
        up = torch.cat([up, double(block.up_bias)[:, None]], 1)
        target = torch.cat([target, torch.zeros_like(target[:, :1])], 1)
    factors = torch.full((block.width,), 2 * slope, dtype=torch.float64)
    return normalised(factors, double(block.down), up, target)


def certified_bound(residual: Residual, y: Float[Tensor, "d k"]) -> float:
    """The lower bound of ‖A + 2c P_S‖_F over all S that the matrix ``y`` certifies (X-CERT, new).

    If ⟨Y, A⟩ + Σ min(0, 2c a_iᵀ Y u_i) > 0 then ⟨Y, A + 2c P_S⟩ is at least that for every S, and
    so is ‖Y‖_F ‖A + 2c P_S‖_F.  Returns 0 where ``y`` proves nothing; a bound of the rounding errors is
    subtracted.

    Raises TypeError if ``y`` is not a real floating tensor, ValueError if it is not finite or not d×d
    (d×(d+1) where the block has biases but no output bias), or if there is no submatrix criterion.

    >>> from samefn import Residual, absorb
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> from samefn.skip.criterion import certified_bound
    >>> residual = Residual(random_mlp(4, 20, generator=Draw(0)))
    >>> Y = absorb(residual).certificate
    >>> certified_bound(residual, Y) > 0  # Y alone proves that no set S works
    True
    """
    criterion = criterion_of(residual)
    if not torch.isfinite(y).all():
        raise ValueError("y must be finite, got NaN or infinity")
    if y.shape != criterion.target.shape:
        raise ValueError(f"y must have shape {tuple(criterion.target.shape)}, got {tuple(y.shape)}")
    y = double(y)
    return criterion.unscaled(criterion.bound(ldexp(y, -exponents(y.reshape(1, -1), 1))))


def trace_test(residual: Residual) -> float:
    """⟨A, A⟩ + Σ min(0, 2c a_iᵀ A u_i), less a bound of its rounding errors.

    For A = I and c > 0 that is d - 2c Σ max(0, -a_i·u_i).  A positive value proves that no set S
    satisfies the criterion, hence that a nondegenerate block cannot absorb its skip (X-CERT, new).
    Raises ValueError if there is no criterion.

    >>> from samefn import Residual, trace_test
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> residual = Residual(random_mlp(64, 128, generator=Draw(0)))
    >>> trace_test(residual) > 0  # so no set S satisfies the criterion
    True
    """
    criterion = criterion_of(residual)
    return criterion.unscaled(criterion.least(criterion.target), degree=2)


def subset_distances(residual: Residual) -> Float[Tensor, "sets"]:
    """‖A + 2c P_S‖_F for all 2^m sets S, by brute force; entry k belongs to S = {i : bit i of k is 1}.

    Raises ValueError for more than 20 units, or if there is no criterion.

    >>> from samefn.skip.criterion import subset_distances
    >>> from samefn.skip.planted import running_example
    >>> distances = subset_distances(running_example())
    >>> len(distances), int(distances.argmin())  # 7 is binary 0111: S = {0, 1, 2}
    (16, 7)
    """
    criterion = criterion_of(residual)
    if residual.block.width > 20:
        raise ValueError(f"residual must have at most 20 units to try all sets, got {residual.block.width}")
    products = criterion.down.T[:, :, None] * criterion.up[:, None, :]
    sums = criterion.target + subset_sums(products)
    return ldexp(sums.flatten(1).norm(dim=1), criterion.exponent)


def subset_sums(summands: Float[Tensor, "m *shape"]) -> Float[Tensor, "sets *shape"]:
    """The sums over all 2^m sets; entry k belongs to the set {i : bit i of k is 1}.

    >>> from samefn.skip.criterion import subset_sums
    >>> subset_sums(torch.tensor([1.0, 10.0, 100.0])).tolist()
    [0.0, 1.0, 10.0, 11.0, 100.0, 101.0, 110.0, 111.0]
    """
    sums = torch.zeros_like(summands[:1].sum(0, keepdim=True))
    for summand in summands:
        sums = torch.cat([sums, sums + summand])
    return sums


# --- solving it -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    """A set of units that satisfies the criterion up to rounding, as a mask of shape (m,).

    >>> from samefn.skip.criterion import Found, criterion_of, solve
    >>> from samefn.skip.planted import running_example
    >>> isinstance(solve(criterion_of(running_example())), Found)
    True
    """

    flips: Bool[Tensor, "m"]


@dataclass(frozen=True)
class Refuted:
    """No set comes nearer than ``margin`` > 0; ``certificate`` is a matrix Y that proves it, or None.

    >>> from samefn.skip.criterion import Refuted, criterion_of, solve
    >>> from samefn.skip.planted import running_example
    >>> refuted = solve(criterion_of(running_example(moved=0.1)))
    >>> isinstance(refuted, Refuted), refuted.margin > 0
    (True, True)
    """

    margin: float
    certificate: Tensor | None = None


@dataclass(frozen=True)
class Undecided:
    """Some set is too near to call ("precision"), or the search was given up ("search").

    >>> from samefn import Residual
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> from samefn.skip.criterion import criterion_of, solve
    >>> solve(criterion_of(Residual(random_mlp(2, 100, generator=Draw(0)))))  # 2^100 sets
    Undecided(reason='search')
    """

    reason: Literal["precision", "search"]


def solve(criterion: Criterion) -> Found | Refuted | Undecided:
    """Find a set S that satisfies the criterion, or refute all, with a margin that is over 2^exponent too.

    Where the matrices a_i u_iᵀ are independent one linear system decides; otherwise certificates are
    tried, and then all sets, as two halves.

    >>> from samefn.skip.criterion import criterion_of, solve
    >>> from samefn.skip.planted import running_example
    >>> solve(criterion_of(running_example()))
    Found(flips=tensor([ True,  True,  True, False]))
    """
    factored = _factored(criterion)
    if factored is None:
        nearest, duals = None, _box_duals(criterion)
    else:
        # independent a_i u_iᵀ: the real solution is unique, so rounding it is a full search
        coefficients, residual = _least_squares(criterion, factored[0])
        nearest = coefficients > 0.5
        if (apart := criterion.apart(nearest)) <= 0:
            return Found(nearest) if apart == 0 else Undecided("precision")
        fraction = (coefficients - nearest.to(coefficients)).abs() * criterion.sizes()
        pinned = (_pinning(criterion, factored[0], unit) for unit in fraction.argsort().tolist()[-1:])
        duals = itertools.chain([criterion.target, residual], pinned)
    best = Refuted(0.0)
    for y in duals:
        best = max(best, Refuted(criterion.bound(y), y), key=lambda refuted: refuted.margin)
        # the target's own margin is often poor
        if best.margin > 0 and y is not criterion.target:
            break
    if best.margin > 0:
        return best
    if nearest is not None and factored is not None and criterion.noise == 0:
        margin = _isolation(criterion, factored[1], nearest)
        if margin > 0:
            return Refuted(margin)
    return _by_halves(criterion)


def _factored(criterion: Criterion) -> tuple[Tensor, float] | None:
    """Factor of the Gram matrix of the 2c a_i u_iᵀ, scaled to norm 1; None unless they are independent."""
    sizes = criterion.sizes()
    if len(sizes) > criterion.target.numel() or not bool((sizes > 0).all()):
        return None
    gram = criterion.down.T @ criterion.down
    gram.mul_(criterion.up @ criterion.up.T).div_(sizes[:, None]).div_(sizes[None, :])
    return positive_factor(gram, sum(criterion.target.shape))


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


def _pinning(criterion: Criterion, factor: Tensor, unit: int) -> Tensor:
    """Y with ⟨Y, 2c a_j u_jᵀ⟩ = [j = unit]: it fixes the unit's coefficient, which then must be 0 or 1."""
    sizes = criterion.sizes()
    basis = torch.zeros_like(sizes)
    basis[unit] = 1 / sizes[unit]
    weights = torch.cholesky_solve(basis[:, None], factor).flatten() / sizes
    return criterion.combine(weights) - criterion.target


def _isolation(criterion: Criterion, mu: float, flips: Bool[Tensor, "m"]) -> float:
    """A lower bound of ‖A + 2c P_S‖_F over all S, from that of one of them, known as if without rounding.

    Another set differs by a combination of the matrices with coefficients -1, 0, 1, not all 0; as the
    least eigenvalue of their Gram matrix, scaled to norm 1, is at least μ/2, that has norm at least
    √(μ/2) times the least of them.
    """
    others, apart = float(criterion.sizes().min()) * (mu / 4) ** 0.5, criterion.apart(flips)
    return min(apart, others - 4 * apart)  # apart is at least a third of the distance


def _box_duals(criterion: Criterion) -> list[Tensor]:
    """The target, and what is left of it after the best coefficients in [0, 1]."""
    if criterion.target.numel() * len(criterion.up) > BOX:
        return [criterion.target]
    columns = (criterion.down.T[:, :, None] * criterion.up[:, None, :]).flatten(1).T.numpy()
    box = scipy.optimize.lsq_linear(columns, -criterion.target.flatten().numpy(), (0, 1), tol=1e-14)
    return [criterion.target, criterion.combine(torch.from_numpy(box.x))]


def _by_halves(criterion: Criterion) -> Found | Refuted | Undecided:
    """All sets: those whose ⟨Y, A + 2c P_S⟩ is near 0, for one Y without pattern, are found by sorting.

    The sums over subsets of one half of the units are sorted, and each sum over the other half looks up
    what it lacks (meet in the middle).  Sets outside the window are as far away as it is wide.
    """
    m = len(criterion.up)
    if m > HALVED:
        return Undecided("search")
    y = probe(criterion.target.numel()).reshape(criterion.target.shape)
    weights, start = criterion.inner(y), float((y * criterion.target).sum())
    left, right = subset_sums(weights[: m // 2]), subset_sums(weights[m // 2 :])
    right, order = right.sort()
    rounding = criterion.rounding()
    # so wide that about CANDIDATES / 16 of 2^m sums spread evenly would be inside
    wide = CANDIDATES / 16 * float(weights.abs().sum() + abs(start)) / 2**m
    for window in (max(2 * rounding, wide), 2 * rounding):
        low, high = (torch.searchsorted(right, -start - left + side) for side in (-window, window))
        if int((high - low).sum()) <= CANDIDATES:
            break
    else:
        return Undecided("search")
    count = high - low
    first = torch.repeat_interleave(torch.arange(len(left)), count)
    step = torch.arange(len(first)) - torch.repeat_interleave(count.cumsum(0) - count, count)
    sets = first + (order[low[first] + step] << m // 2)  # bit i of an entry: whether unit i is flipped
    flips = (sets[:, None] >> torch.arange(m) & 1).to(torch.bool)
    batches = flips.split(max(2**22 // criterion.target.numel(), 1))
    far = [criterion.combine(batch.to(torch.float64)).flatten(1).norm(dim=1) - rounding for batch in batches]
    distances = torch.cat(far)
    close = flips[distances <= rounding]
    margin = min([window - rounding, *distances[distances > rounding].tolist()])
    for one in close[:64]:
        margin = min(margin, criterion.apart(one))
        if margin == 0:
            return Found(one)
    if len(close) > 64:
        return Undecided("search")
    return Refuted(margin) if margin > 0 else Undecided("precision")


def probe(n: Count) -> Float[Tensor, "n"]:
    """A fixed unit vector without pattern, which no vector of a few round numbers is orthogonal to by chance.

    The angles k² are equidistributed (Weyl); and as nothing is drawn, no verdict depends on a seed.
    """
    vector = torch.cos(torch.arange(1, n + 1, dtype=torch.float64) ** 2)
    return vector / vector.norm()
