"""A-C11: for almost all weights no residual block is residual-free, and conversely.  Chapter
``skip/generic``.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import sympy
import torch
from sympy.polys.matrices import DomainMatrix

from ...draw import Draw
from ...networks import MLP, Residual, random_mlp
from ...skip.absorption import absorb
from ...skip.criterion import certified_bound, subset_distances, trace_test
from ...skip.generic import LAWS, absorbing_on_grid, mean_length, negative_overlap
from .. import Claim, require

claim = Claim(
    id="A-C11",
    title="For almost all weights no residual block is residual-free, and no residual-free block is residual",
    source="[A], Corollary 11; both directions and the bound at initialisation are ours",
    hypotheses=("d ≥ 2", "σ is ReLU or GELU", "weights with a density", "same width"),
    uses=("A-L4", "A-T8", "A-T10"),
    chapter="skip/generic",
)


@claim.exact("for each S the entries of P_S + I are polynomials, and P_S + I = I at W = 0")
def polynomials_that_are_not_zero() -> str:
    d, m = 2, 3
    up, down = sympy.Matrix(m, d, sympy.symbols("u:6")), sympy.Matrix(d, m, sympy.symbols("a:6"))
    weights = [*up, *down]
    for chosen in itertools.product((0, 1), repeat=m):
        sums = sympy.eye(d) + down * sympy.diag(*chosen) * up
        require(
            all(entry.is_polynomial(*weights) for entry in sums), f"P_S + I is no polynomial for S = {chosen}"
        )
        require(
            sums.subs(dict.fromkeys(weights, 0)) == sympy.eye(d),
            f"P_S + I is not I at W = 0 for S = {chosen}",
        )
    minor = sympy.Poly(up[0, 0] * up[1, 1] - up[0, 1] * up[1, 0], *weights)
    require(not minor.is_zero, "collinear rows are no equation")
    return "d = 2, m = 3, all 8 sets (SymPy)"


@claim.exact("a nonzero polynomial of degree D has at most D·q^(N−1) zeros among q^N grid points")
def zeros_on_a_grid(draw: Draw) -> str:
    variables, degree, q = 3, 3, 9
    axes = np.meshgrid(*[np.arange(q)] * variables)
    powers = [p for p in itertools.product(range(degree + 1), repeat=variables) if sum(p) <= degree]
    coefficients = [1, *draw.integers(-2, 3, len(powers) - 1).tolist()]
    monomials = (np.prod([x**e for x, e in zip(axes, p, strict=True)], axis=0) for p in powers)
    value = sum(c * monomial for c, monomial in zip(coefficients, monomials, strict=True))
    zeros, most = int((value == 0).sum()), degree * q ** (variables - 1)
    require(zeros <= most, f"{zeros} zeros on a grid, more than {most}")
    return f"{zeros} ≤ {most} of {q**variables}"


@claim.exact("P_S = −I are d² independent equations at its solutions")
def independent_equations(draw: Draw) -> str:
    d, size = draw.integer(2, 4), draw.integer(3, 6)
    up, down = _solution(draw.rng(), d, size)
    eye = np.eye(d, dtype=int)
    require((down @ up == -eye).all(), "A U is not −I")
    jacobian = np.concatenate([np.kron(eye, up.T), np.kron(down, eye)], 1)  # of (dA, dU) ↦ dA·U + A·dU
    rank = DomainMatrix.from_Matrix(sympy.Matrix(jacobian.tolist())).to_field().rank()
    require(
        rank == d * d, f"P_S = −I loses {d * d - rank} dimensions at a solution with d = {d}, |S| = {size}"
    )
    return f"rank {rank} = d², |S| = {size}"


def _solution(rng: np.random.Generator, d: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Integer U (size × d) and A (d × size) with A U = −I."""
    eye, lower = np.eye(d, dtype=int), rng.integers(-5, 6, (size - d, d))
    annihilates = np.concatenate([-lower, np.eye(size - d, dtype=int)], 1)  # … U = (I; lower)
    down = np.concatenate([-eye, np.zeros((d, size - d), dtype=int)], 1)
    return np.concatenate([eye, lower]), down + rng.integers(-5, 6, (d, size - d)) @ annihilates


@claim.certificate("blocks of four laws: x + B is not residual-free, B is not x + B'")
def four_laws_both_ways(draw: Draw) -> str:
    margins = []
    for name, law in LAWS.items():
        block = law(5, 16, draw)
        for target in (torch.eye(5), -torch.eye(5)):
            residual = Residual(block, target)
            found = absorb(residual)
            require(
                found.absorbed is False and found.certificate is not None, f"{name}: no certificate: {found}"
            )
            margins.append(certified_bound(residual, found.certificate))
            require(margins[-1] > 0, f"{name}: the certificate proves nothing")
    return f"for every S, ‖P_S ± I‖ ≥ {min(margins):.2f}"


@claim.numeric("the certified margin is below the distance of the nearest of all 2^m sets")
def margin_below_every_set(draw: Draw) -> str:
    small = Residual(random_mlp(2, 4, generator=draw))
    found, exact = absorb(small), float(subset_distances(small).min())
    holds = found.absorbed is False and 0 < found.margin <= exact * (1 + 1e-9)
    require(holds, f"margin {found.margin}, nearest set {exact}")
    return f"{found.margin:.1e} ≤ {exact:.2f}"


@claim.numeric("E Σ max(0, −a_i·u_i) = E‖u‖·√(m/2π)")
def expected_overlap(draw: Draw) -> str:
    d, m, draws = 4, 16, 1000
    overlap = negative_overlap(draw.normal(draws, m, d) / d**0.5, draw.normal(draws, d, m) / m**0.5)
    mean, expected = float(overlap.mean()), mean_length(d) * (m / (2 * math.pi)) ** 0.5
    # Var T ≤ 1/2, so the mean of 1000 draws has a standard error of at most 0.0224; six of them are allowed
    require(
        abs(mean - expected) < 6 * (0.5 / draws) ** 0.5, f"mean overlap {mean:.3f}, expected {expected:.3f}"
    )
    return f"{mean:.3f} measured, {expected:.3f} expected"


@claim.certificate("the trace test alone refutes a standard initialisation, d = 32, m = 128")
def standard_initialisation(draw: Draw) -> str:
    test = trace_test(Residual(random_mlp(32, 128, generator=draw)))
    require(test > 0, f"the trace test does not certify a standard initialisation: {test:.2f}")
    chance = 0.5 / (32 - (128 / (2 * math.pi)) ** 0.5) ** 2
    return f"{test:.1f} > 0; fails with probability ≤ {chance:.1e}"


@claim.control(
    "weights with a density", "weights drawn from −1, 0, 1 absorb with positive probability, d = m = 2"
)
def discrete_weights() -> str:
    matrices = np.array(list(itertools.product((-1, 0, 1), repeat=4))).reshape(-1, 2, 2)
    products = np.einsum("aij,bjk->abik", matrices, matrices)
    hits = int((products == -np.eye(2, dtype=int)).all((2, 3)).sum())
    determinants = matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] * matrices[:, 1, 0]
    unimodular = int((abs(determinants) == 1).sum())
    require(hits == unimodular == absorbing_on_grid(1) > 0, f"{hits} pairs, {unimodular} of determinant ±1")
    return f"exactly {hits}/{len(matrices) ** 2}"


@claim.control(
    "weights with a density", "absorb flips both units of a block with weights −1, 0, 1 and W_down W_up = −I"
)
def discrete_block(draw: Draw) -> str:
    up = torch.zeros(2, 2)
    while abs(round(float(torch.linalg.det(up)))) != 1:
        up = draw.integers(-1, 2, 2, 2).double()
    found = absorb(Residual(MLP(up, -torch.linalg.inv(up).round())))
    require(
        found.flipped == (0, 1),
        f"a block with weights −1, 0, 1 and W_down W_up = −I was not absorbed: {found}",
    )
    return f"W_up = {up.int().tolist()}"


@claim.control("d ≥ 2", "on the line every block of two or more ReLU units absorbs")
def line(draw: Draw) -> str:
    found = absorb(Residual(random_mlp(1, 6, generator=draw)))
    require(found.absorbed is True, f"a block on the line was not absorbed: {found}")
    return "absorbed, m = 6"


@claim.control(
    "a polynomial that is not identically zero",
    "skip 0 in place of I: P_S + 0 vanishes identically for S = ∅",
)
def zero_skip(draw: Draw) -> str:
    found = absorb(Residual(random_mlp(3, 8, generator=draw), torch.zeros(3, 3)))
    require(found.absorbed is True and found.flipped == (), f"the zero skip was not absorbed: {found}")
    return "always absorbed"


@claim.control("same width", "with d more units a random block absorbs its skip")
def wider_block(draw: Draw) -> str:
    block = random_mlp(3, 8, generator=draw)
    inverse = torch.linalg.inv(block.up[:3])
    down = torch.cat([block.down[:, :3] + inverse, block.down[:, 3:], -inverse], 1)
    wider = MLP(torch.cat([block.up, -block.up[:3]]), down)
    x = draw.normal(200, 3)
    # the new weights are as large as the inverse, and so are the terms that cancel
    scale = float((x @ block.up.T).abs().max() * (1 + inverse.norm()))
    off = float((wider(x) - x - block(x)).abs().max()) / scale
    require(off < 1e-13, f"d more units do not make up for the skip: {off:.1e}")
    return f"relative difference {off:.1e}"
