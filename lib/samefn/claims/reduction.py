"""A-L4: every invertible linear skip reduces to the identity.  Chapter ``skip/reduction``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import sympy
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ..absorption import absorb, plant, subset_distances
from ..activations import get, leaky_relu
from ..networks import MLP, Residual, hyper_connection, random_mlp
from . import Claim, Control, Evidence, require


def reduced(residual: Residual) -> Residual:
    """x + M⁻¹B(x) for the residual block Mx + B(x) of a block without biases.

    Raises ValueError if the skip M is singular to working precision.
    """
    M = residual.skip_matrix().detach()
    if not torch.linalg.cond(M) < 1 / torch.finfo(M.dtype).eps:
        raise ValueError(f"residual must have an invertible skip, got one of condition number {torch.linalg.cond(M):.1e}")
    block = residual.block
    return Residual(MLP(block.up.detach(), torch.linalg.solve(M, block.down.detach()), block.activation))


def uniform_mixing(n: int) -> Tensor:
    """11ᵀ/n: every stream becomes the mean of all."""
    return torch.full((n, n), 1 / n, dtype=torch.float64)


def permutation_mixture(weights: np.ndarray, n: int) -> sympy.Matrix:
    """The doubly stochastic matrix Σ w_π P_π / Σ w_π over all n! permutations, exactly, for whole-number weights."""
    total = [[0] * n for _ in range(n)]
    for weight, order in zip(weights.tolist(), itertools.permutations(range(n))):
        for row, column in enumerate(order):
            total[row][column] += weight
    return sympy.Matrix(total) / int(weights.sum())


def determinant_on_ray(C: sympy.Matrix) -> sympy.Poly:
    """det((1 − s)I + sC) as a polynomial in s, for a rational matrix C."""
    # det(I + sE) has the coefficients of the characteristic polynomial of −E = I − C, in reverse
    coefficients = DomainMatrix.from_Matrix(sympy.eye(C.rows) - C).to_field().charpoly()
    return sympy.Poly(coefficients[::-1], sympy.Symbol("s"), domain="QQ")


@cache
def _symbolic() -> None:
    """The identities that hold with letters for numbers; raises ClaimFailed if one does not."""
    M, D = sympy.Matrix(2, 2, sympy.symbols("m:4")), sympy.Matrix(2, 3, sympy.symbols("a:6"))
    x, h = sympy.Matrix(sympy.symbols("x:2")), sympy.Matrix(sympy.symbols("h:3"))
    before, after = M * x + D * h, x + (M.inv() * D) * h
    require(sympy.simplify(M * after - before) == sympy.zeros(2, 1), "M(x + M⁻¹B(x)) is not Mx + B(x)")
    require(sympy.simplify(M.inv() * before - after) == sympy.zeros(2, 1), "M⁻¹(Mx + B(x)) is not x + M⁻¹B(x)")
    kron = sympy.kronecker_product(M, sympy.eye(2))
    require(sympy.expand(kron.det() - M.det() ** 2) == 0, "det(C ⊗ I_d) is not det(C)^d")
    t = sympy.Symbol("t")
    for n in range(2, 6):
        mixing = (1 - t) * sympy.eye(n) + t * sympy.ones(n) / n
        require(sympy.expand(mixing.det() - (1 - t) ** (n - 1)) == 0, f"n = {n}: det C(t) is not (1 − t)^(n−1)")


@cache
def _nonlinear(alpha: sympy.Rational) -> str:
    """The control of a nonlinear invertible skip, φ(x) = leaky ReLU of slope α and B = −ReLU, on one coordinate."""
    p = sympy.Symbol("p", positive=True)
    relu, skip, inverse = (f.expression for f in (get("relu"), leaky_relu(float(alpha)), leaky_relu(float(1 / alpha))))
    for x in (p, -p):
        require(sympy.simplify(inverse(skip(x)) - x) == 0, "leaky ReLU of slope 1/α is not the inverse of slope α")
        require(sympy.simplify(skip(x) - relu(x) + alpha * relu(-x)) == 0, "the nonlinear skip is not absorbed")
    gap = sympy.simplify(p + inverse(-relu(p)) - inverse(-alpha * relu(-p)))
    require(gap != 0, "the reduced equation holds for a nonlinear skip")
    return f"at x = p > 0 the sides differ by {gap}"


def _invertible(rng: np.random.Generator, d: int) -> sympy.Matrix:
    while (found := sympy.Matrix(rng.integers(-9, 10, (d, d)).tolist())).det() == 0:
        pass
    return found


def _well_conditioned(d: int, generator: torch.Generator) -> Tensor:
    """A random matrix whose singular values lie between ½ and 2."""
    left, right = (torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))[0] for _ in range(2))
    return left * (0.5 + 1.5 * torch.rand(d, generator=generator, dtype=torch.float64)) @ right


def _near_identity_mixing(n: int, generator: torch.Generator) -> Tensor:
    """(1 − t)I + tC with C doubly stochastic and t < 0.45, so that no singular value is below 1 − 2t > 0.1."""
    t = 0.45 * torch.rand((), generator=generator, dtype=torch.float64)
    weights = torch.randint(1, 10**6, (math.factorial(n),), generator=generator)
    C = torch.tensor(permutation_mixture(weights.numpy(), n).tolist(), dtype=torch.float64)
    return (1 - t) * torch.eye(n, dtype=torch.float64) + t * C


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)

    _symbolic()
    yield Evidence("exact", "M(x + M⁻¹B(x)) = Mx + B(x) and back; det(C ⊗ I) = det(C)^d; det C(t) = (1 − t)^(n−1)", "difference 0 (SymPy)")

    M, basis = _invertible(rng, 3), _invertible(rng, 3)
    up = basis.col_join(sympy.Matrix(rng.integers(-9, 10, (2, 3)).tolist()))
    down = (-M * basis.inv()).row_join(sympy.Matrix(rng.integers(-9, 10, (3, 2)).tolist()))
    turned = sympy.diag(-1, -1, -1, 1, 1) * up
    smaller = M.inv() * down
    # equal even parts (same lines, same columns) and equal odd parts: equal functions of x
    gap = sympy.eye(3) + smaller * up / 2 - smaller * turned / 2
    require(gap == sympy.zeros(3), f"x + M⁻¹B and M⁻¹B' have different linear parts: {gap}")
    require(M + down[:, :3] * up[:3, :] == sympy.zeros(3), "P_S is not −M")
    yield Evidence("exact", "rational block with P_S = −M: x + M⁻¹B(x) = M⁻¹B'(x)", f"equal for all x, det M = {M.det()}")

    agreed, worst = 0, 0.0
    for M, m in ((_well_conditioned(3, generator), 7), (hyper_connection(_near_identity_mixing(3, generator), 2), 12)):
        d = len(M)
        units = tuple(sorted(torch.randperm(m, generator=generator)[: d + 1].tolist()))
        drawn = random_mlp(d, m, generator=generator)
        x = torch.randn(200, d, generator=generator, dtype=torch.float64)
        for residual, expected in ((Residual(drawn, M), None), (plant(drawn, units, M), units)):
            found, smaller = absorb(residual), absorb(reduced(residual))
            require(found.flipped == smaller.flipped == expected, f"{found.flipped} for M, {smaller.flipped} for I, {expected} planted")
            require(found.absorbed is smaller.absorbed is (expected is not None), f"{found} for M, {smaller} for I")
            agreed += 1
        value, other = residual(x), smaller.network(x) @ M.T
        worst = max(worst, float((value - other).abs().max() / value.abs().max()))
    require(worst < 1e-11, f"M·(residual-free block of the reduced problem) differs by {worst:.1e}")
    yield Evidence("numeric", "absorb gives the same S for (B, M) and for (M⁻¹B, I)", f"{agreed} blocks, functions equal to {worst:.1e}")

    M = _well_conditioned(2, generator)
    residual = Residual(random_mlp(2, 8, generator=generator), M)
    low, high = torch.linalg.svdvals(M).flip(0).tolist()
    ratio = float(subset_distances(residual).min() / subset_distances(reduced(residual)).min())
    require(low * (1 - 1e-9) <= ratio <= high * (1 + 1e-9), f"ratio {ratio} of the distances outside [{low}, {high}]")
    yield Evidence("numeric", "the distance to −M scales by a factor between the extreme singular values of M", f"{low:.2f} ≤ {ratio:.2f} ≤ {high:.2f}")

    n = 3 + seed % 2
    C = permutation_mixture(rng.integers(1, 10**6, math.factorial(n)), n)
    ray = determinant_on_ray(C)
    require(ray.eval(0) == 1 and ray.degree() <= n, f"det on the ray is not a polynomial with value 1 at I: {ray}")
    require(ray.eval(1) != 0, f"a random doubly stochastic matrix is singular: {C}")
    roots = ray.count_roots()
    require(roots <= n, f"{roots} singular matrices on a line for n = {n}")
    yield Evidence("exact", "a random doubly stochastic C is invertible; at most n singular matrices on the line through I", f"det C ≠ 0, n = {n}, {roots} on the line")


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)

    n, d = int(rng.integers(2, 4)), int(rng.integers(1, 3))
    require((sympy.ones(n) / n).det() == 0, "the uniform mixing matrix is invertible")
    M = hyper_connection(uniform_mixing(n), d)
    block = random_mlp(n * d, n * d + 2, generator=generator)
    up, down = block.up.detach().clone(), block.down.detach().clone()
    up[:d] = torch.randn(d, d, generator=generator, dtype=torch.float64).repeat(1, n)  # rows in the row space of M
    few = plant(MLP(up, down), tuple(range(d)), M)
    found = absorb(few)
    require(found.absorbed is True and len(found.flipped) == d, f"rank M = {d} units do not absorb the uniform skip: {found}")
    yield Control("M invertible, |S| ≥ nd", "a uniform mix of streams is absorbed by fewer than nd units", f"{d} of the nd = {n * d}")

    # P_S = −M + N with MN = 0: multiplied by M, its own pseudo-inverse, the equation holds; without, it does not
    N = (torch.eye(n * d, dtype=torch.float64) - M) @ torch.randn(n * d, n * d, generator=generator, dtype=torch.float64)
    block = plant(block, tuple(range(n * d)), M - N).block
    P = block.down[:, : n * d] @ block.up[: n * d]
    require(float((M + M @ P).norm()) < 1e-9 * float(1 + P.norm()), "M⁺P_S is not −M⁺M")
    found = absorb(Residual(block, M))
    require(found.absorbed is False, f"the block absorbs although P_S ≠ −M: {found}")
    yield Control("M invertible, pseudo-inverse for inverse", "the equation times M⁺ holds, the equation does not", f"‖M + P_S‖ ≥ {found.margin:.1e} for all S")

    alpha = sympy.Rational(1, 2 ** int(rng.integers(1, 4)))
    yield Control("the skip is linear", "φ = leaky ReLU: φ(x) + B(x) = B'(x), but x + φ⁻¹(B(x)) ≠ φ⁻¹(B'(x))", _nonlinear(alpha))

    while (u := _invertible(rng, 2)).row(0).dot(u.row(1)) == 0:
        pass
    skip = u.T * u  # = −P_S for a_i = −u_i: turning both units absorbs it, and a_i = −u_i becomes a_i = +u_i
    moved = -skip.inv() * u.T
    parallel = [sympy.Matrix.hstack(moved[:, i], u.row(i).T).det() == 0 for i in range(2)]
    require(not any(parallel), f"M⁻¹a_i is still a multiple of u_i: {parallel}")
    yield Control("W_down is free", "with a_i = ±u_i tied, M⁻¹B leaves the class although B absorbs M in it", f"M = {skip.tolist()}")


CLAIM = Claim(
    id="A-L4",
    title="Every invertible linear skip reduces to the identity",
    source="[A], Lemma 4",
    hypotheses=("the skip M is linear", "M is invertible", "W_down is free", "same width"),
    uses=(),
    chapter="skip/reduction",
    evidence=evidence,
    controls=controls,
)
