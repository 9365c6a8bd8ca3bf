"""A-L4: every invertible linear skip reduces to the identity.  Chapter ``skip/reduction``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import sympy
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ...activations import get, leaky_relu
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual, hyper_connection, random_mlp
from ...skip.absorption import Absorption, absorb
from ...skip.criterion import subset_distances
from ...skip.planted import plant
from .. import Claim, require

claim = Claim(
    id="A-L4",
    title="Every invertible linear skip reduces to the identity",
    source="[A], Lemma 4",
    hypotheses=("the skip M is linear", "M is invertible", "W_down is free", "same width"),
    uses=(),
    chapter="skip/reduction",
)


def _reduced(residual: Residual) -> Residual:
    """x + M⁻¹B(x) for the residual block Mx + B(x) of a block without biases."""
    block = residual.block
    down = torch.linalg.solve(residual.skip_matrix(), block.down)
    return Residual(MLP(block.up, down, block.activation))


def _uniform(n: int) -> Tensor:
    """11ᵀ/n: every stream becomes the mean of all."""
    return torch.full((n, n), 1 / n)


def _permutation_mixture(weights: Sequence[int], n: int) -> sympy.Matrix:
    """The doubly stochastic Σ w_π P_π / Σ w_π over all n! permutations, exactly, for whole-number weights."""
    total = [[0] * n for _ in range(n)]
    for weight, order in zip(weights, itertools.permutations(range(n)), strict=True):
        for row, column in enumerate(order):
            total[row][column] += weight
    return sympy.Matrix(total) / sum(weights)


def _doubly_stochastic(n: int, draw: Draw) -> sympy.Matrix:
    return _permutation_mixture(draw.integers(1, 10**6, math.factorial(n)).tolist(), n)


def _determinant_on_ray(C: sympy.Matrix) -> sympy.Poly:
    """det((1 − s)I + sC) as a polynomial in s, for a rational matrix C."""
    # det(I + sE) has the coefficients of the characteristic polynomial of −E = I − C, in reverse
    coefficients = DomainMatrix.from_Matrix(sympy.eye(C.rows) - C).to_field().charpoly()
    return sympy.Poly(coefficients[::-1], sympy.Symbol("s"), domain="QQ")


def _integers(draw: Draw, rows: int, columns: int) -> sympy.Matrix:
    return sympy.Matrix(draw.integers(-9, 10, rows, columns).tolist())


def _invertible(draw: Draw, d: int) -> sympy.Matrix:
    while (found := _integers(draw, d, d)).det() == 0:
        pass
    return found


def _well_conditioned(d: int, draw: Draw) -> Tensor:
    """A random matrix whose singular values lie between ½ and 2."""
    left, right = (torch.linalg.qr(draw.normal(d, d))[0] for _ in range(2))
    return left * (0.5 + 1.5 * draw.uniform(d)) @ right


def _near_identity_mixing(n: int, draw: Draw) -> Tensor:
    """(1 − t)I + tC with C doubly stochastic, t < 0.45: no singular value is below 1 − 2t > 0.1."""
    t = 0.45 * draw.uniform(1)
    C = torch.tensor(_doubly_stochastic(n, draw).tolist(), dtype=torch.float64)
    return (1 - t) * torch.eye(n) + t * C


@claim.exact("M(x + M⁻¹B(x)) = Mx + B(x), and back")
def reduced_equation() -> str:
    M, down = sympy.Matrix(2, 2, sympy.symbols("m:4")), sympy.Matrix(2, 3, sympy.symbols("a:6"))
    x, hidden = sympy.Matrix(sympy.symbols("x:2")), sympy.Matrix(sympy.symbols("h:3"))
    before, after = M * x + down * hidden, x + (M.inv() * down) * hidden
    require(sympy.simplify(M * after - before) == sympy.zeros(2, 1), "M(x + M⁻¹B(x)) is not Mx + B(x)")
    require(
        sympy.simplify(M.inv() * before - after) == sympy.zeros(2, 1), "M⁻¹(Mx + B(x)) is not x + M⁻¹B(x)"
    )
    return "difference 0, with letters for d = 2, m = 3 (SymPy)"


@claim.exact("det(C ⊗ I) = det(C)^d")
def determinant_of_a_hyper_connection() -> str:
    C = sympy.Matrix(2, 2, sympy.symbols("c:4"))
    skip = sympy.kronecker_product(C, sympy.eye(2))
    require(sympy.expand(skip.det() - C.det() ** 2) == 0, "det(C ⊗ I_d) is not det(C)^d")
    return "difference 0, with letters for n = d = 2 (SymPy)"


@claim.exact("det C(t) = (1 − t)^(n−1)")
def determinant_towards_the_uniform_mix() -> str:
    t = sympy.Symbol("t")
    for n in range(2, 6):
        mixing = (1 - t) * sympy.eye(n) + t * sympy.ones(n) / n
        require(
            sympy.expand(mixing.det() - (1 - t) ** (n - 1)) == 0, f"n = {n}: det C(t) is not (1 − t)^(n−1)"
        )
    return "difference 0 for n = 2, …, 5 (SymPy)"


@claim.exact("rational block with P_S = −M: x + M⁻¹B(x) = M⁻¹B'(x)")
def rational_block(draw: Draw) -> str:
    M, basis = _invertible(draw, 3), _invertible(draw, 3)
    up = basis.col_join(_integers(draw, 2, 3))
    down = (-M * basis.inv()).row_join(_integers(draw, 3, 2))
    require(M + down[:, :3] * up[:3, :] == sympy.zeros(3), "P_S is not −M")
    turned, smaller = sympy.diag(-1, -1, -1, 1, 1) * up, M.inv() * down
    # the even parts agree (same lines, same columns), so equal odd parts mean equal functions of x
    odd = sympy.eye(3) + smaller * up / 2 - smaller * turned / 2
    require(odd == sympy.zeros(3), f"x + M⁻¹B and M⁻¹B' have different linear parts: {odd}")
    return f"equal for all x, det M = {M.det()}"


@claim.numeric("absorb gives the same S for (B, M) and for (M⁻¹B, I)")
def same_set(draw: Draw) -> str:
    hyper = hyper_connection(_near_identity_mixing(3, draw), 2)
    worst = 0.0
    for M, m in ((_well_conditioned(3, draw), 7), (hyper, 12)):
        drawn, units = random_mlp(len(M), m, generator=draw), draw.subset(m, len(M) + 1)
        _absorbed_alike(Residual(drawn, M), None)
        planted = plant(drawn, units, M)
        free = _absorbed_alike(planted, units).network
        worst = max(worst, gap(planted, MLP(free.up, M @ free.down), draw.normal(200, len(M))))
    require(worst < 1e-11, f"M·(residual-free block of the reduced problem) differs by {worst:.1e}")
    return f"4 blocks, functions equal to {worst:.1e}"


def _absorbed_alike(residual: Residual, units: tuple[int, ...] | None) -> Absorption:
    """The answer for (M⁻¹B, I), where S must be ``units`` for it and for (B, M); None: no S."""
    found, smaller = absorb(residual), absorb(_reduced(residual))
    same = found.flipped == smaller.flipped == units
    require(same, f"{found.flipped} for M, {smaller.flipped} for I, {units} planted")
    require(found.absorbed is smaller.absorbed is (units is not None), f"{found} for M, {smaller} for I")
    return smaller


@claim.numeric("the distance to −M scales by a factor between the extreme singular values of M")
def distances_scale(draw: Draw) -> str:
    M = _well_conditioned(2, draw)
    residual = Residual(random_mlp(2, 8, generator=draw), M)
    low, high = torch.linalg.svdvals(M).flip(0).tolist()
    ratio = float(subset_distances(residual).min() / subset_distances(_reduced(residual)).min())
    inside = low * (1 - 1e-9) <= ratio <= high * (1 + 1e-9)
    require(inside, f"ratio {ratio} of the distances outside [{low}, {high}]")
    return f"{low:.2f} ≤ {ratio:.2f} ≤ {high:.2f}"


@claim.exact("a random doubly stochastic C is invertible; at most n singular matrices on the line through I")
def singular_matrices_on_a_line(draw: Draw) -> str:
    n = draw.integer(3, 5)
    C = _doubly_stochastic(n, draw)
    ray = _determinant_on_ray(C)
    polynomial = ray.eval(0) == 1 and ray.degree() <= n
    require(polynomial, f"det on the ray is not a polynomial with value 1 at I: {ray}")
    require(ray.eval(1) == C.det() != 0, f"a random doubly stochastic matrix is singular: {C}")
    roots = ray.count_roots()
    require(roots <= n, f"{roots} singular matrices on a line for n = {n}")
    return f"det C ≠ 0, n = {n}, {roots} on the line"


@claim.control("M invertible, |S| ≥ nd", "a uniform mix of streams is absorbed by fewer than nd units")
def uniform_mix(draw: Draw) -> str:
    n, d = draw.integer(2, 4), draw.integer(1, 3)
    require((sympy.ones(n) / n).det() == 0, "the uniform mixing matrix is invertible")
    block = random_mlp(n * d, n * d + 2, generator=draw)
    up = block.up.clone()
    up[:d] = draw.normal(d, d).repeat(1, n)  # rows in the row space of M
    few = plant(MLP(up, block.down), tuple(range(d)), hyper_connection(_uniform(n), d))
    found = absorb(few)
    absorbs = found.absorbed is True and found.flipped is not None and len(found.flipped) == d
    require(absorbs, f"rank M = {d} units do not absorb the uniform skip: {found}")
    return f"{d} of the nd = {n * d}"


@claim.control(
    "M invertible, pseudo-inverse for inverse", "the equation times M⁺ holds, the equation does not"
)
def pseudo_inverse(draw: Draw) -> str:
    n, d = draw.integer(2, 4), draw.integer(1, 3)
    M, size = hyper_connection(_uniform(n), d), n * d
    N = (torch.eye(size) - M) @ draw.normal(
        size, size
    )  # M is its own pseudo-inverse and MN = 0, so P_S = −M + N
    block = plant(random_mlp(size, size + 2, generator=draw), tuple(range(size)), M - N).block
    P = block.down[:, :size] @ block.up[:size]
    require(float((M + M @ P).norm()) < 1e-9 * float(1 + P.norm()), "M⁺P_S is not −M⁺M")
    found = absorb(Residual(block, M))
    require(found.absorbed is False, f"the block absorbs although P_S ≠ −M: {found}")
    return f"‖M + P_S‖ ≥ {found.margin:.1e} for all S"


@claim.control("the skip is linear", "φ = leaky ReLU: φ(x) + B(x) = B'(x), but x + φ⁻¹(B(x)) ≠ φ⁻¹(B'(x))")
def nonlinear_skip() -> str:
    p, relu = sympy.Symbol("p", positive=True), get("relu").expression
    sides = []
    for alpha in (sympy.Rational(1, 2), sympy.Rational(1, 4), sympy.Rational(1, 8)):
        skip, inverse = leaky_relu(float(alpha)).expression, leaky_relu(float(1 / alpha)).expression
        for x in (p, -p):  # B = −ReLU and B'(x) = −α ReLU(−x)
            require(sympy.simplify(inverse(skip(x)) - x) == 0, "slope 1/α is not the inverse of slope α")
            absorbed = sympy.simplify(skip(x) - relu(x) + alpha * relu(-x)) == 0
            require(absorbed, "the nonlinear skip is not absorbed")
        sides.append(sympy.simplify(p + inverse(-relu(p)) - inverse(-alpha * relu(-p))))
        require(sides[-1] != 0, "the reduced equation holds for a nonlinear skip")
    return f"at x = p > 0 the sides differ by {', '.join(map(str, sides))} for slopes 1/2, 1/4, 1/8"


@claim.control("W_down is free", "with a_i = ±u_i tied, M⁻¹B leaves the class although B absorbs M in it")
def tied_weights(draw: Draw) -> str:
    while (u := _invertible(draw, 2)).row(0).dot(u.row(1)) == 0:
        pass
    skip = u.T * u  # = −P_S for a_i = −u_i: turning both units absorbs it, and a_i = −u_i becomes a_i = +u_i
    moved = -skip.inv() * u.T
    parallel = [sympy.Matrix.hstack(moved[:, i], u.row(i).T).det() == 0 for i in range(2)]
    require(not any(parallel), f"M⁻¹a_i is still a multiple of u_i: {parallel}")
    return f"M = {skip.tolist()}"
