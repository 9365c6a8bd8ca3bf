"""A-C11: for almost all weights no residual block is residual-free, and conversely.  Chapter ``skip/generic``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import sympy
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ..absorption import absorb, certified_bound, subset_distances, trace_test
from ..networks import MLP, Residual, random_mlp
from . import Claim, Control, Evidence, require


def _uniform(d: int, m: int, generator: torch.Generator, scale: float) -> MLP:
    def draw(rows: int, columns: int) -> Tensor:
        return (2 * torch.rand(rows, columns, generator=generator, dtype=torch.float64) - 1) * scale / columns**0.5

    return MLP(draw(m, d), draw(d, m))


def _orthogonal(d: int, m: int, generator: torch.Generator) -> MLP:
    first, second = torch.randn(2, m, d, generator=generator, dtype=torch.float64)
    return MLP(torch.linalg.qr(first)[0], torch.linalg.qr(second)[0].T)


# name -> block of shape d, m (m ≥ d); the last law has no density on the space of all weights
LAWS: dict[str, Callable[[int, int, torch.Generator], MLP]] = {
    "normal, variances 1/d and 1/m": lambda d, m, generator: random_mlp(d, m, generator=generator),
    "uniform, variances 1/d and 1/m": lambda d, m, generator: _uniform(d, m, generator, 3**0.5),
    "default of nn.Linear, variances 1/3d and 1/3m": lambda d, m, generator: _uniform(d, m, generator, 1.0),
    "orthonormal columns and rows": _orthogonal,
}


def negative_overlap(up: Tensor, down: Tensor) -> Tensor:
    """T = Σ max(0, −a_i·u_i), for a batch of blocks: up (..., m, d) and down (..., d, m)."""
    return (-(up * down.transpose(-1, -2)).sum(-1)).clamp(min=0).sum(-1)


def mean_length(d: int) -> float:
    """E‖u‖ for a normal u in R^d with independent entries of variance 1/d; just below 1."""
    return math.exp(math.lgamma((d + 1) / 2) - math.lgamma(d / 2)) * (2 / d) ** 0.5


def absorbing_on_grid(k: int) -> int:
    """How many W_up, W_down, all 2×2 with entries in {−k, ..., k}/k, satisfy W_down W_up = −I; exact.

    W_up determines W_down = −W_up⁻¹, so it is enough to go through all W_up.
    """
    p, q, r, s = np.meshgrid(*[np.arange(-k, k + 1)] * 4)
    det = p * s - q * r
    entries = -(k**2) * np.stack([s, -q, -r, p])  # of k W_down, times det
    possible = det != 0
    whole = entries % np.where(possible, det, 1) == 0
    small = abs(entries) <= k * abs(det)
    return int((possible & whole.all(0) & small.all(0)).sum())


@cache
def _symbolic() -> None:
    """P_S + I is polynomial, and not identically zero, for each S; raises ClaimFailed if not."""
    d, m = 2, 3
    up, down = sympy.Matrix(m, d, sympy.symbols("u:6")), sympy.Matrix(d, m, sympy.symbols("a:6"))
    weights = [*up, *down]
    for size in range(m + 1):
        for S in map(list, itertools.combinations(range(m), size)):
            sums = sympy.eye(d) + (down[:, S] * up[S, :] if S else sympy.zeros(d))
            require(all(entry.is_polynomial(*weights) for entry in sums), f"P_S + I is not polynomial for S = {S}")
            require(sums.subs(dict.fromkeys(weights, 0)) == sympy.eye(d), f"P_S + I is not I at W = 0 for S = {S}")
    minor = sympy.Poly(up[0, 0] * up[1, 1] - up[0, 1] * up[1, 0], *weights)
    require(not minor.is_zero, "collinear rows are no equation")


@cache
def _discrete() -> tuple[int, int]:
    """(absorbing pairs, all pairs) of 2×2 matrices with entries −1, 0, 1, counted by going through all of them."""
    matrices = np.array(list(itertools.product((-1, 0, 1), repeat=4))).reshape(-1, 2, 2)
    products = np.einsum("aij,bjk->abik", matrices, matrices)
    hits = int((products == -np.eye(2, dtype=int)).all((2, 3)).sum())
    unimodular = int((abs(matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] * matrices[:, 1, 0]) == 1).sum())
    require(hits == unimodular == absorbing_on_grid(1), f"{hits} pairs, but {unimodular} matrices of determinant ±1")
    return hits, len(matrices) ** 2


def _roots_on_grid(rng: np.random.Generator, variables: int = 3, degree: int = 3, values: int = 9) -> tuple[int, int]:
    """(zeros of a random nonzero polynomial on the grid {0, ..., values − 1}^variables, degree · values^(variables − 1))."""
    axes = np.meshgrid(*[np.arange(values)] * variables)
    powers = [p for p in itertools.product(range(degree + 1), repeat=variables) if sum(p) <= degree]
    coefficients = rng.integers(-2, 3, len(powers))
    coefficients[0] = 1
    total = sum(int(c) * np.prod([x**e for x, e in zip(axes, p)], axis=0) for c, p in zip(coefficients, powers))
    return int((total == 0).sum()), degree * values ** (variables - 1)


def _rank_at_solution(rng: np.random.Generator, d: int, size: int) -> int:
    """Rank of (dA, dU) ↦ dA·U + A·dU at a rational solution of A U = −I, A ∈ R^{d×size}; exact."""
    U = np.concatenate([np.eye(d, dtype=int), rng.integers(-5, 6, (size - d, d))])
    A = np.concatenate([-np.eye(d, dtype=int), np.zeros((d, size - d), dtype=int)], 1)
    mixed = rng.integers(-5, 6, (d, size - d))  # A + mixed·(what annihilates U) solves A U = −I too
    A = A + mixed @ np.concatenate([-U[d:], np.eye(size - d, dtype=int)], 1)
    require((A @ U == -np.eye(d, dtype=int)).all(), "A U is not −I")
    jacobian = np.concatenate([np.kron(np.eye(d, dtype=int), U.T), np.kron(A, np.eye(d, dtype=int))], 1)
    return DomainMatrix.from_Matrix(sympy.Matrix(jacobian.tolist())).to_field().rank()


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)

    _symbolic()
    yield Evidence("exact", "for each S the entries of P_S + I are polynomials, and P_S + I = I at W = 0", "d = 2, m = 3, all 8 sets (SymPy)")

    zeros, most = _roots_on_grid(rng)
    require(zeros <= most, f"{zeros} zeros on a grid, more than {most}")
    yield Evidence("exact", "a nonzero polynomial of degree D has at most D·q^(N−1) zeros among q^N grid points", f"{zeros} ≤ {most} of 729")

    d, size = int(rng.integers(2, 4)), int(rng.integers(3, 6))
    rank = _rank_at_solution(rng, d, size)
    require(rank == d * d, f"P_S = −I loses {rank} dimensions at a solution with d = {d}, |S| = {size}")
    yield Evidence("exact", "P_S = −I are d² independent equations at its solutions", f"rank {rank} = d², |S| = {size}")

    margins = []
    for name, draw in LAWS.items():
        block = draw(5, 16, generator)
        for target in (torch.eye(5, dtype=torch.float64), -torch.eye(5, dtype=torch.float64)):
            residual = Residual(block, target)
            found = absorb(residual)
            require(found.absorbed is False and found.certificate is not None, f"{name}: no certificate: {found}")
            bound = certified_bound(residual, found.certificate)
            require(bound > 0, f"{name}: the certificate proves nothing")
            margins.append(bound)
    yield Evidence("certificate", "blocks of four laws: x + B is not residual-free, B is not x + B'", f"for every S, ‖P_S ± I‖ ≥ {min(margins):.2f}")

    small = Residual(random_mlp(2, 4, generator=generator))
    found, exact = absorb(small), float(subset_distances(small).min())
    require(found.absorbed is False and 0 < found.margin <= exact * (1 + 1e-9), f"margin {found.margin}, nearest set {exact}")
    yield Evidence("numeric", "the certified margin is below the distance of the nearest of all 2^m sets", f"{found.margin:.1e} ≤ {exact:.2f}")

    d, m, draws = 4, 16, 1000
    up = torch.randn(draws, m, d, generator=generator, dtype=torch.float64) / d**0.5
    down = torch.randn(draws, d, m, generator=generator, dtype=torch.float64) / m**0.5
    overlap = negative_overlap(up, down)
    expected = mean_length(d) * (m / (2 * math.pi)) ** 0.5
    # Var T ≤ 1/2, so the mean of 1000 draws has a standard error of at most 0.0224; six of them are allowed
    require(abs(float(overlap.mean()) - expected) < 6 * (0.5 / draws) ** 0.5, f"mean overlap {overlap.mean():.3f}, expected {expected:.3f}")
    yield Evidence("numeric", "E Σ max(0, −a_i·u_i) = E‖u‖·√(m/2π)", f"{float(overlap.mean()):.3f} measured, {expected:.3f} expected")

    initial = Residual(random_mlp(32, 128, generator=generator))
    test = trace_test(initial)
    require(test > 0, f"the trace test does not certify a standard initialisation: {test:.2f}")
    chance = 0.5 / (32 - (128 / (2 * math.pi)) ** 0.5) ** 2
    yield Evidence("certificate", "the trace test alone refutes a standard initialisation, d = 32, m = 128", f"{test:.1f} > 0; fails with probability ≤ {chance:.1e}")


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)

    hits, pairs = _discrete()
    require(hits > 0, "no block with weights −1, 0, 1 absorbs")
    rng = np.random.default_rng(seed)
    while abs(round(np.linalg.det(pick := rng.integers(-1, 2, (2, 2))))) != 1:
        pass
    up = torch.from_numpy(pick).double()
    found = absorb(Residual(MLP(up, -torch.linalg.inv(up).round())))
    require(found.flipped == (0, 1), f"a block with weights −1, 0, 1 and W_down W_up = −I was not absorbed: {found}")
    yield Control("weights with a density", "weights drawn from −1, 0, 1 absorb with positive probability, d = m = 2", f"exactly {hits}/{pairs}")

    line = absorb(Residual(random_mlp(1, 6, generator=generator)))
    require(line.absorbed is True, f"a block on the line was not absorbed: {line}")
    yield Control("d ≥ 2", "on the line every block of two or more ReLU units absorbs", "absorbed, m = 6")

    block = random_mlp(3, 8, generator=generator)
    zero = absorb(Residual(block, torch.zeros(3, 3, dtype=torch.float64)))
    require(zero.absorbed is True and zero.flipped == (), f"the zero skip was not absorbed: {zero}")
    yield Control("a polynomial that is not identically zero", "skip 0 in place of I: P_S + 0 vanishes identically for S = ∅", "always absorbed")

    inverse = torch.linalg.inv(block.up[:3].detach())
    first = torch.cat([block.down[:, :3] + inverse, block.down[:, 3:], -inverse], 1)
    wider = MLP(torch.cat([block.up, -block.up[:3]]).detach(), first.detach())
    x = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    # the new weights are as large as the inverse, and so are the terms that cancel
    scale = float((x @ block.up.T).abs().max() * (1 + inverse.norm()))
    gap = float((wider(x) - x - block(x)).abs().max()) / scale
    require(gap < 1e-13, f"d more units do not make up for the skip: {gap:.1e}")
    yield Control("same width", "with d more units a random block absorbs its skip", f"relative difference {gap:.1e}")


CLAIM = Claim(
    id="A-C11",
    title="For almost all weights no residual block is residual-free, and no residual-free block is residual",
    source="[A], Corollary 11; both directions and the bound at initialisation are ours",
    hypotheses=("d ≥ 2", "σ is ReLU or GELU", "weights with a density", "same width"),
    uses=("A-L4", "A-T8", "A-T10"),
    chapter="skip/generic",
    evidence=evidence,
    controls=controls,
)
