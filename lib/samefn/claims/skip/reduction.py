"""A-L4: every invertible linear skip reduces to the identity.  Chapter ``skip/reduction``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import sympy
import torch
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ...activations import leaky_relu
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, GatedMLP, Residual, hyper_connection, random_gated_mlp, random_mlp
from ...skip.absorption import absorb, flip
from ...skip.planted import plant
from .. import Claim, require

claim = Claim(
    id="A-L4",
    title="Every invertible linear skip reduces to the identity",
    source="[A], Lemma 4; streams that are not read are ours",
    hypotheses=(
        "the skip M is linear",
        "M is invertible",
        "W_down is free",
        "three or more streams, where blocks read one mix",
    ),
    uses=(),
    chapter="skip/reduction",
)


def _reduced_columns(M: sympy.Matrix, down: sympy.Matrix) -> sympy.Matrix:
    """M⁻¹W_down."""
    return M.inv() * down


def _reduced(residual: Residual) -> Residual:
    """x + M⁻¹B(x) for the residual block Mx + B(x) of a block without output bias."""
    block = residual.block
    down = torch.linalg.solve(residual.skip_matrix(), block.down)
    if isinstance(block, GatedMLP):
        return Residual(GatedMLP(block.gate, block.up, down, block.activation))
    return Residual(MLP(block.up, down, block.activation, block.up_bias))


def _uniform(q: int) -> sympy.Matrix:
    """11ᵀ/q: every stream becomes the mean of all."""
    return sympy.ones(q) / q


def _permutation_mixture(weights: Sequence[int], q: int) -> sympy.Matrix:
    """The doubly stochastic Σ w_π Π_π / Σ w_π over all q! permutations, exactly, for whole-number weights."""
    total = [[0] * q for _ in range(q)]
    for weight, order in zip(weights, itertools.permutations(range(q)), strict=True):
        for row, column in enumerate(order):
            total[row][column] += weight
    return sympy.Matrix(total) / sum(weights)


def _doubly_stochastic(q: int, draw: Draw) -> sympy.Matrix:
    return _permutation_mixture(draw.integers(1, 10**6, math.factorial(q)).tolist(), q)


def _determinant_on_ray(C: sympy.Matrix) -> sympy.Poly:
    """det((1 − t)I + tC) as a polynomial in t, for a rational matrix C."""
    # det(I + tE) has the coefficients of the characteristic polynomial of −E = I − C, in reverse
    coefficients = DomainMatrix.from_Matrix(sympy.eye(C.rows) - C).to_field().charpoly()
    return sympy.Poly(coefficients[::-1], sympy.Symbol("t"), domain="QQ")


def _tensor(matrix: sympy.Matrix) -> Tensor:
    return torch.tensor(matrix.tolist(), dtype=torch.float64)


def _integers(draw: Draw, rows: int, columns: int) -> sympy.Matrix:
    return sympy.Matrix(draw.integers(-9, 10, rows, columns).tolist())


def _invertible(draw: Draw, d: int) -> sympy.Matrix:
    while (found := _integers(draw, d, d)).det() == 0:
        pass
    return found


def _unimodular(draw: Draw) -> sympy.Matrix:
    """A 2 × 2 matrix of whole numbers whose inverse has whole numbers, too."""
    a, b, c = (draw.integers(1, 4, 3) * draw.signs(3)).int().tolist()
    return sympy.Matrix([[1, a], [0, 1]]) * sympy.Matrix([[1, 0], [b, 1]]) * sympy.Matrix([[1, c], [0, -1]])


def _well_conditioned(d: int, draw: Draw) -> Tensor:
    """A random matrix whose singular values lie between ½ and 2."""
    left, right = (torch.linalg.qr(draw.normal(d, d))[0] for _ in range(2))
    return left * (0.5 + 1.5 * draw.uniform(d)) @ right


def _distances(residual: Residual) -> Tensor:
    """‖M + P_S‖_F for all S, unit 0 switching fastest."""
    block, M = residual.block, residual.skip_matrix()
    chosen = torch.tensor(list(itertools.product([0.0, 1.0], repeat=block.width))).flip(1)
    return (M + torch.einsum("si,di,ie->sde", chosen, block.down, block.up)).flatten(1).norm(dim=1)


@claim.exact("M(x + M⁻¹B(x)) = Mx + B(x), and back")
def reduced_equation() -> str:
    M, down = sympy.Matrix(2, 2, sympy.symbols("m:4")), sympy.Matrix(2, 3, sympy.symbols("a:6"))
    x, hidden = sympy.Matrix(sympy.symbols("x:2")), sympy.Matrix(sympy.symbols("y:3"))
    before, after = M * x + down * hidden, x + _reduced_columns(M, down) * hidden
    require((M * after - before).applyfunc(sympy.simplify).is_zero_matrix, "M(x + M⁻¹B(x)) is not Mx + B(x)")
    back = (M.inv() * before - after).applyfunc(sympy.simplify)
    require(back.is_zero_matrix, "M⁻¹(Mx + B(x)) is not x + M⁻¹B(x)")
    return "difference 0, with letters for d = 2, m = 3 (SymPy)"


@claim.exact("whole-number ReLU block with P_S = −M: Mx + B = B' and x + M⁻¹B = M⁻¹B'")
def whole_number_block(draw: Draw) -> str:
    M, basis, others = _unimodular(draw), _unimodular(draw), _integers(draw, 2, 2)
    up = _tensor(basis.col_join(_integers(draw, 2, 2)))
    down = (-M * basis.inv()).row_join(others)
    turned = up * torch.tensor([-1.0, -1.0, 1.0, 1.0])[:, None]
    kinks = torch.stack([-up[:, 1], up[:, 0]], 1)
    # all these functions are linear between neighbouring kinks: equal on the kinks' rays is equal
    x = torch.cat([kinks, -kinks])
    for skip, columns in ((M, down), (sympy.eye(2), _reduced_columns(M, down))):
        W_down = _tensor(columns)
        sides = Residual(MLP(up, W_down), _tensor(skip))(x), MLP(turned, W_down)(x)
        require(torch.equal(*sides), f"for the skip {skip.tolist()} the sides differ on a ray")
    return f"equal on all {len(x)} rays, M = {M.tolist()}"


@claim.numeric("the miss for M is M times the miss of the reduced problem, for blocks of any kind and widths")
def misses_differ_by_the_skip(draw: Draw) -> str:
    M, x, worst = _well_conditioned(3, draw), draw.normal(200, 3), 0.0
    for activation in ("relu", "gelu", "tanh", "silu"):
        plain = [random_mlp(3, m, activation, biases=True, generator=draw) for m in (7, 4)]
        plain = [MLP(b.up, b.down, activation, b.up_bias) for b in plain]
        gated = [random_gated_mlp(3, m, activation, generator=draw) for m in (5, 8)]
        for block, other in (plain, gated):
            reduced, free = (_reduced(Residual(b, M)) for b in (block, other))
            miss = lambda x, B=block, other=other: Residual(B, M)(x) - other(x)
            reduced_miss = lambda x, reduced=reduced, free=free: (reduced(x) - free.block(x)) @ M.T
            worst = max(worst, gap(miss, reduced_miss, x))
    require(worst < 1e-12, f"M·(x + M⁻¹B − M⁻¹B') is not Mx + B − B': {worst:.1e}")
    return f"8 pairs of blocks, relative difference {worst:.1e}"


@claim.numeric("the sets with P_S = −M are those with M⁻¹P_S = −I, and absorb finds them")
def same_set(draw: Draw) -> str:
    mixing = 0.6 * torch.eye(3) + 0.4 * _tensor(_doubly_stochastic(3, draw))  # no singular value below 0.2
    worst = 0.0
    for M, m in ((_well_conditioned(3, draw), 7), (hyper_connection(mixing, 2), 9)):
        drawn, units = random_mlp(len(M), m, generator=draw), draw.subset(m, len(M) + 1)
        for residual, planted in ((Residual(drawn, M), None), (plant(drawn, units, M), units)):
            sets = [] if planted is None else [sum(2**i for i in units)]
            for problem in (residual, _reduced(residual)):
                found, solved = absorb(problem), (_distances(problem) < 1e-9).nonzero().flatten().tolist()
                require(solved == sets, f"P_S = −M for the sets {solved}, {planted} planted")
                agree = found.absorbed is (planted is not None) and found.flipped == planted
                require(agree, f"planted {planted}, absorb says {found}")
                if planted is not None:
                    worst = max(worst, gap(problem, found.network, draw.normal(200, len(M))))
    require(worst < 1e-11, f"the residual-free block differs by {worst:.1e}")
    return f"4 blocks, with M and reduced; functions equal to {worst:.1e}"


@claim.numeric("the distances to −M and −I differ, for each S, by a factor between the singular values of M")
def distances_scale(draw: Draw) -> str:
    M = 8 * _well_conditioned(2, draw)
    drawn = random_mlp(2, 8, generator=draw)
    residual = Residual(MLP(drawn.up, 100 * drawn.down), M)  # without M⁻¹ the ratio would be near 1
    high, low = torch.linalg.svdvals(M).tolist()
    ratio = _distances(residual) / _distances(_reduced(residual))
    inside = (low * (1 - 1e-9) <= ratio) & (ratio <= high * (1 + 1e-9))
    require(inside.all(), f"ratios {ratio[~inside].tolist()} outside [{low}, {high}]")
    return f"{low:.2f} ≤ {float(ratio.min()):.2f}, {float(ratio.max()):.2f} ≤ {high:.2f}, 256 sets"


@claim.exact("C ⊗ I_d mixes the streams by C, and its determinant is det(C)^d")
def hyper_connections(draw: Draw) -> str:
    q, d = 3, 2
    C, streams = _integers(draw, q, q), _integers(draw, q, d)
    skip = sympy.Matrix(hyper_connection(_tensor(C), d).int().tolist())
    mixed = (skip * streams.reshape(q * d, 1)).reshape(q, d)
    require(mixed == C * streams, f"the streams become {mixed.tolist()}, not {(C * streams).tolist()}")
    require(skip.det() == C.det() ** d, f"det(C ⊗ I_d) = {skip.det()}, det C = {C.det()}")
    return f"det C = {C.det()}, det(C ⊗ I_2) = {skip.det()}"


@claim.exact("the uniform mix is singular of rank 1, and det C(t) = (1 − t)^(q−1) on the way to it")
def towards_the_uniform_mix() -> str:
    t = sympy.Symbol("t")
    for q in range(2, 7):
        require(_uniform(q).rank() == 1, f"the uniform mix of {q} streams has rank {_uniform(q).rank()}")
        ray = _determinant_on_ray(_uniform(q))
        require(ray == sympy.Poly((1 - t) ** (q - 1), t, domain="QQ"), f"det C(t) is {ray} for q = {q}")
    return "for q = 2, …, 6"


@claim.exact(
    "a random doubly stochastic C is invertible; fewer than q singular matrices on the line through I"
)
def singular_matrices_on_a_line(draw: Draw) -> str:
    q = draw.integer(3, 5)
    C = _doubly_stochastic(q, draw)
    sums = {sum(line) for half in (C, C.T) for line in half.tolist()}
    require(sums == {1} and min(C) >= 0, f"not doubly stochastic: {C.tolist()}")
    ray = _determinant_on_ray(C)
    for t in (0, 1, 2, sympy.Rational(-1, 3)):
        exact = ((1 - t) * sympy.eye(q) + t * C).det()
        require(ray.eval(t) == exact, f"the polynomial is {ray.eval(t)} at {t}, the determinant {exact}")
    require(C.det() != 0, f"a random doubly stochastic matrix is singular: {C.tolist()}")
    require(ray.degree() < q, f"det on the ray has degree {ray.degree()} for q = {q}")
    return f"det C ≠ 0, q = {q}, {ray.count_roots()} on the line"


def _one_mix(read: Tensor, write: Tensor, block: MLP) -> MLP:
    """The block on R^{qd} that reads Σ r_l x_l and adds p_j times its value to stream j."""
    up, down = torch.kron(read[None], block.up), torch.kron(write[:, None], block.down)
    return MLP(up, down, block.activation, block.up_bias)


@claim.certificate("a shift of the streams that neither block sees, and the skip keeps")
def streams_that_are_not_read(draw: Draw) -> str:
    q, d = draw.integer(3, 6), 2
    C, reads = _invertible(draw, q), _integers(draw, 2, q)
    v = reads.nullspace()[0]
    v, y = _tensor(v * sympy.ilcm(*(entry.q for entry in v))).flatten(), torch.tensor([1.0, -2.0])
    shift = torch.kron(v, y)
    skip = hyper_connection(_tensor(C), d) @ shift
    require(
        torch.equal(skip, torch.outer(_tensor(C) @ v, y).flatten()), "the skip does not move x_l by Cv ⊗ y"
    )
    require(skip.any(), "the skip does not keep the shift")
    for read, activation in zip(_tensor(reads), ("gelu", "relu_squared")):
        drawn = random_mlp(d, 4, activation, biases=True, generator=draw)
        whole = MLP(draw.integers(-9, 10, 4, d).double(), drawn.down, activation, drawn.up_bias)
        block = _one_mix(read, draw.normal(q), whole)
        seen = block(torch.stack([shift, 0 * shift]))
        require(torch.equal(*seen), f"a block that reads {read.tolist()} sees the shift")
    return f"q = {q}, ‖shift‖ = {float(shift.norm()):.1f}, ‖(C ⊗ I)shift‖ = {float(skip.norm()):.1f}"


@claim.control(
    "three or more streams, where blocks read one mix",
    "two streams: linear blocks that read one mix each absorb C = I",
)
def two_streams() -> str:
    first, second = torch.eye(2)
    minus, plus = (MLP(torch.eye(3), sign * torch.eye(3), "identity") for sign in (-1, 1))
    x = torch.arange(60.0).reshape(10, 6)
    left, right = Residual(_one_mix(second, second, minus)), _one_mix(first, first, plus)
    require(torch.equal(left(x), right(x)), "x minus the second stream is not the first")
    return "difference 0"


@claim.control("M is invertible", "rank M = d units absorb the uniform mix of q streams, fewer than qd")
def uniform_mix(draw: Draw) -> str:
    q, d = draw.integer(2, 4), draw.integer(1, 3)
    M = hyper_connection(_tensor(_uniform(q)), d)
    block, units = random_mlp(q * d, q * d + 2, generator=draw), tuple(range(d))
    up = block.up.clone()
    up[:d] = draw.normal(d, d).repeat(1, q)  # rows in the row space of M
    few = plant(MLP(up, block.down), units, M)
    miss = gap(few, flip(few.block, units), draw.normal(200, q * d))
    require(miss < 1e-11, f"{d} units do not absorb the uniform skip: {miss:.1e}")
    return f"{d} of the qd = {q * d}"


@claim.control("M is invertible", "with M⁺ for M⁻¹ the reduced equation holds, the equation does not")
def pseudo_inverse(draw: Draw) -> str:
    q, d = draw.integer(2, 4), draw.integer(1, 3)
    M, units = hyper_connection(_tensor(_uniform(q)), d), tuple(range(q * d))
    N = (torch.eye(q * d) - M) @ draw.normal(q * d, q * d)  # M is its own pseudo-inverse, and MN = 0
    block = plant(random_mlp(q * d, q * d + 2, generator=draw), units, M - N).block  # P_S = −M + N
    x = draw.normal(200, q * d)
    left, right = Residual(block, M)(x), flip(block, units)(x)
    reduced = float(((left - right) @ M.T).norm() / left.norm())
    require(reduced < 1e-10, f"M⁺Mx + M⁺B is not M⁺B': {reduced:.1e}")
    miss = float((left - right).norm() / x.norm())
    require(miss > 1e-3, f"Mx + B is B' all the same: {miss:.1e}")
    return f"‖Mx + B − B'‖ is {miss:.2f} ‖x‖, M⁺ times it {reduced:.0e}"


@claim.control("the skip M is linear", "the skip σ_α = leaky ReLU is absorbed; the reduced equation is false")
def nonlinear_skip() -> str:
    p, sides = sympy.Symbol("p", positive=True), []
    relu = lambda z: sympy.Max(z, 0)
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
    moved = _reduced_columns(skip, -u.T)
    parallel = [sympy.Matrix.hstack(moved[:, i], u.row(i).T).det() == 0 for i in range(2)]
    require(not any(parallel), f"M⁻¹a_i is still a multiple of u_i: {parallel}")
    return f"M = {skip.tolist()}"
