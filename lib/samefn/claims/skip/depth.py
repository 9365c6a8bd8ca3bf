"""A-C7: stacks of flat blocks, or of slow ones, that are equal have one product of skips.  Chapter
``skip/depth``.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import sympy
import torch
from torch import Tensor, nn

from ...activations import Activation, get, relu_power
from ...draw import Draw
from ...networks import MLP, GatedMLP, Residual, Stack, random_mlp
from ...skip.depth import (
    FLAT_KINDS,
    RECIPROCAL,
    RELU,
    SLOW_KINDS,
    absorbing_stack,
    growth_constant,
    products_of_skips,
    random_block,
    random_stacks,
    remainders_at_infinity,
    remainders_at_zero,
    stack_of_inverse_roots,
    without_flat_blocks,
)
from ...skip.gated import STEP
from ...skip.homogeneous import identity_with_biases
from .. import Claim, require

claim = Claim(
    id="A-C7",
    title="A stack of flat blocks, or of slow ones, with M_L⋯M_1 ≠ 0 equals none in which a skip is missing",
    source="[A], Corollary 7; degree below 1, bounded, and a single missing skip: ours",
    hypotheses=(
        "all blocks flat, or all slow",
        "flat: degree k > 1, or gated with g(0) = 0, g continuous at 0",
        "flat: no biases",
        "slow: bounded, or degree 0 < k < 1; no gates",
        "M_L⋯M_1 ≠ 0",
    ),
    uses=("A-P5", "A-P6"),
    chapter="skip/depth",
)


_SMOOTH_KINDS = tuple(kind for kind in FLAT_KINDS if kind != "signed root")  # differentiable at 0


def _kinds(options: Sequence[str], depth: int, draw: Draw) -> list[str]:
    return [draw.choice(options) for _ in range(depth)]


@claim.exact("two blocks on the line, weights as letters: derivative at 0 (SwiGLU, GeGLU, bilinear)")
def two_blocks_on_the_line() -> str:
    x = sympy.Symbol("x", real=True)
    w1, u1, a1, w2, u2, a2, m1, m2 = sympy.symbols("w1 u1 a1 w2 u2 a2 M1 M2", real=True)
    for name in ("silu", "gelu", "identity"):
        g = get(name).expression
        inner = lambda t, g=g: a1 * g(w1 * t) * u1 * t
        outer = lambda t, g=g: a2 * g(w2 * t) * u2 * t
        first, second = m1 * x + inner(x), inner(x)
        for label, stack, expected in (
            ("residual", m2 * first + outer(first), m1 * m2),
            ("first skip gone", m2 * second + outer(second), 0),
            ("second skip gone", outer(first), 0),
            ("residual-free", outer(second), 0),
        ):
            slope = sympy.simplify(sympy.diff(stack, x).subs(x, 0))
            require(sympy.expand(slope - expected) == 0, f"{name}, {label}: derivative {slope} at 0")
    return "M₂M₁ with both skips, 0 without one or both"


def _square(size: float) -> GatedMLP:
    """x ↦ size·x² on the line, a bilinear block."""
    return GatedMLP(torch.ones(1, 1), torch.ones(1, 1), torch.tensor([[size]]), "identity")


def _polynomial(coefficients: Sequence[Fraction], skips: Sequence[Fraction]) -> list[Fraction]:
    """The composition of x ↦ Mx + ax² over the pairs (a, M) on the line, as coefficients of x⁰, x¹, ..."""
    p = np.array([Fraction(0), Fraction(1)], dtype=object)
    for a, skip in zip(coefficients, skips, strict=True):
        p = a * np.convolve(p, p) + skip * np.concatenate([p, [Fraction(0)] * (len(p) - 1)])
    return list(p)


@claim.exact("bilinear stacks of depth 1 to 4 as rational polynomials, which are what the library computes")
def rational_polynomials(draw: Draw) -> str:
    halves = [Fraction(j, 2) for j in (-3, -2, -1, 1, 2, 3)]
    for depth in range(1, 5):
        a, skips = ([draw.choice(halves) for _ in range(depth)] for _ in range(2))
        polynomial = _polynomial(a, skips)
        require(polynomial[1] == np.prod(skips), f"linear coefficient {polynomial[1]} with skips {skips}")
        layers = zip(a, skips, strict=True)
        stack = Stack([Residual(_square(float(size)), torch.tensor([[float(m)]])) for size, m in layers])
        # at 1 numerators and denominators stay below 2^40, so float64 does not round
        value = Fraction(float(stack(torch.ones(1))))
        require(value == sum(polynomial), f"the library's stack is {value} at 1, not {sum(polynomial)}")
        free = _polynomial(a, [Fraction(0)] * depth)
        lowest = next(power for power, value in enumerate(free) if value)
        require(lowest == 2**depth, f"depth {depth}: the residual-free polynomial starts at x^{lowest}")
        skips[draw.integer(0, depth)] = Fraction(0)
        require(_polynomial(a, skips)[:2] == [0, 0], "a linear term is left although one skip is gone")
    return "linear term ∏M; without skips, lowest power 2^L"


def _prefixes(stack: Stack, x: Tensor) -> Tensor:
    """The outputs after 1, 2, ..., L blocks, stacked along a new first axis."""
    outputs = []
    for block in stack.blocks:
        x = block(x)
        outputs.append(x)
    return torch.stack(outputs)


def _jacobians_at_zero(stack: Stack) -> Tensor:
    """The Jacobians at 0 of the first 1, 2, ..., L blocks, by automatic differentiation; shape (L, d, d)."""
    return torch.func.jacrev(lambda x: _prefixes(stack, x))(torch.zeros(stack.dim_in))


@claim.numeric("mixed stacks of depth 1 to 8: Jacobian at 0 is ∏M, or 0 if one skip is missing")
def jacobians(draw: Draw) -> str:
    residual, one_gone, free, gone = random_stacks(_kinds(_SMOOTH_KINDS, 8, draw), 3, generator=draw)
    expected = torch.stack(products_of_skips(residual)[1:])
    worst = float((_jacobians_at_zero(residual) - expected).abs().max())
    # the rounding of 8 products of 3×3 matrices
    require(worst < 1e-13, f"the Jacobian at 0 is off the product of the skips by {worst:.1e}")
    pairs = zip(_jacobians_at_zero(one_gone), _jacobians_at_zero(free), strict=True)
    for depth, (some, none) in enumerate(pairs, 1):
        require(not none.any(), f"depth {depth}: derivative at 0 without skips")
        right = bool(some.any()) is (depth <= gone)
        require(right, f"depth {depth}: wrong derivative with block {gone} free")
    return f"{worst:.1e}, exactly 0"


@claim.numeric("‖B(x)‖ ≤ κ‖x‖^k for every kind, also where gates vanish; one unit attains κ")
def growth(draw: Draw) -> str:
    least = 1.0
    for kind in FLAT_KINDS + SLOW_KINDS:
        block = random_block(kind, 3, 5, generator=draw)
        (kappa, k), v = growth_constant(block), draw.normal(5, 3)
        rows = block.gate if isinstance(block, GatedMLP) else block.up
        share = (v * rows).sum(1) / rows.square().sum(1)
        beside = v - (1 - 1e-9) * share[:, None] * rows  # each nearly orthogonal to a row
        x = torch.cat([v, rows, beside]) * torch.logspace(-4, 4, 15)[draw.permutation(15), None]
        quotient = float((block(x).norm(dim=1) / x.norm(dim=1) ** k).max()) / kappa
        require(quotient <= 1 + 1e-12, f"{kind}: ‖B(x)‖ reaches {quotient:.2f} κ‖x‖^k")
        up, down = 0.1 + draw.uniform(2, 1, 1)
        gated, sigma = isinstance(block, GatedMLP), block.activation
        unit = GatedMLP(up, up, down, sigma) if gated else MLP(up, down, sigma)
        attained = float(unit(torch.tensor([1e9]))) / (growth_constant(unit)[0] * 1e9**k)
        require(abs(attained - 1) < 1e-6, f"{kind}: a unit attains {attained} of its κ")
        least = min(least, attained)
    return f"attained: at least {least:.8f} κ"


_SIZES = (1e-2, 1.0, 1e2)  # of skips and blocks


def _layer(skip: float, size: float, activation: str | Activation, steep: float = 1.0) -> Residual:
    """x ↦ skip·x + size·σ(steep·x) on the line."""
    steep_, size_, skip_ = (torch.full((1, 1), value) for value in (steep, size, skip))
    return Residual(MLP(steep_, size_, activation), skip_)


@claim.certificate("two one-unit layers on the line, of all sizes: remainders in their bounds, some attained")
def remainders_of_all_sizes() -> str:
    near, far, x, root = [], [], torch.logspace(-4, 6, 41)[:, None], relu_power(0.5)
    for m1, s1, m2, s2 in itertools.product(_SIZES, repeat=4):
        flat = Stack([_layer(m1, s1, "relu_squared"), _layer(m2, s2, "relu_squared")])
        rhos, _, r = remainders_at_zero(flat)
        near.append((float(flat(torch.tensor([r]))) / r - m2 * m1) / (rhos[-1] * r))
        for second in (_layer(m2, s2, root), _layer(m2, s2, "tanh", 1e6)):  # that tanh is almost 1
            slow = Stack([_layer(m1, s1, root), second])
            rhos, k = remainders_at_infinity(slow)
            far.append(float(((slow(x) - m2 * m1 * x) / (rhos[-1] * (1 + x**k))).max()))
    # 1e-4 is for the rounding of Λx, at most 1e10, beside remainders of at least 0.1
    for end, quotients in (("0", near), ("infinity", far)):
        require(0.99 < max(quotients) < 1 + 1e-4, f"at {end} a remainder is {max(quotients)} of its bound")
    return f"largest quotients {max(near):.4f} near 0, {max(far):.4f} far out"


def _imitation(stack: Stack, target: Stack, draw: Draw) -> Stack:
    """The stack, its last block fitted to the target on 20 points by least squares in W_down."""
    *first, last = stack.blocks
    x, units = draw.normal(20, stack.dim_in), torch.eye(last.width)
    hidden = MLP(last.up, units, last.activation)
    if isinstance(last, GatedMLP):
        hidden = GatedMLP(last.gate, last.up, units, last.activation)
    last.down.data = torch.linalg.lstsq(Stack([*first, hidden])(x), target(x), driver="gelsd").solution.T
    return stack


def _others(kinds: Sequence[str], draw: Draw) -> tuple[Stack, dict[str, Stack]]:
    """A residual stack, and three that differ in their skips."""
    residual, one_gone, free, _ = random_stacks(kinds, 3, generator=draw)
    skips = random_stacks(kinds, 3, generator=draw)[0]
    fitted = _imitation(free, residual, draw)
    return residual, {"one skip gone": one_gone, "fitted without skips": fitted, "other skips": skips}


def _linear_difference(f: Stack, g: Stack, v: Tensor) -> Tensor:
    """(Λ - Λ')v for each row v."""
    return v @ (products_of_skips(f)[-1] - products_of_skips(g)[-1]).T


def _apart(f: Stack, g: Stack, x: Tensor) -> float:
    """min ‖F(x) - F'(x)‖ / ‖(Λ - Λ')x‖."""
    return float(((f(x) - g(x)).norm(dim=1) / _linear_difference(f, g, x).norm(dim=1)).min())


@claim.certificate("near 0 stacks differ by at least ½‖(Λ − Λ')x‖, at a computed radius, depth 1 to 4")
def apart_near_zero(draw: Draw) -> str:
    residual, others = _others(_kinds(FLAT_KINDS, draw.integer(1, 5), draw), draw)
    (rhos, k, radius), apart = remainders_at_zero(residual), {}
    for name, other in others.items():
        rhos_other, _, radius_other = remainders_at_zero(other)
        v = nn.functional.normalize(draw.normal(20, 3), dim=1)
        # at this radius both remainders together are at most half of the least ‖(Λ - Λ')x‖
        share = float(_linear_difference(residual, other, v).norm(dim=1).min()) / 2
        r = min(radius, radius_other, (share / (rhos[-1] + rhos_other[-1])) ** (1 / (k - 1)))
        apart[name] = _apart(residual, other, r * v)
        require(apart[name] >= 0.5 * (1 - 1e-9), f"{name}: apart by {apart[name]}, certified 1/2")
    return ", ".join(f"{name} {value:.2f}" for name, value in apart.items())


@claim.certificate("degree below 1 or bounded, depth 1 to 8: F(x) = Λx + O(1 + ‖x‖^k)")
def linear_far_out(draw: Draw) -> str:
    residual, *_ = random_stacks(_kinds(SLOW_KINDS, 8, draw), 3, generator=draw)
    rhos, k = remainders_at_infinity(residual)
    x = nn.functional.normalize(draw.normal(60, 3), dim=1) * torch.logspace(-3, 24, 60)[:, None]
    linear = x @ torch.stack(products_of_skips(residual)[1:]).mT
    bound = torch.tensor(rhos)[:, None] * (1 + x.norm(dim=1) ** k)
    off = (_prefixes(residual, x) - linear).norm(dim=2)
    largest = float((off / (bound + 1e-13 * linear.norm(dim=2))).max())  # the rounding of Λx
    require(largest <= 1, f"a remainder exceeds its bound by the factor {largest:.2f}")
    return f"remainder at most {largest:.2f} of its bound"


@claim.numeric("slow blocks with biases: (F(x) − Λx)/‖x‖ falls like ‖x‖^(−1/2) for √ReLU, ‖x‖^(−1) for tanh")
def slow_with_biases(draw: Draw) -> str:
    slopes, r = [], torch.logspace(10, 14, 9)
    for activation, k in ((relu_power(0.5), 0.5), ("tanh", 0)):
        blocks = [random_mlp(3, 6, activation, biases=True, generator=draw) for _ in range(3)]
        v = nn.functional.normalize(draw.normal(50, 3), dim=1)
        x = r[:, None, None] * v
        shares = ((Stack([Residual(b) for b in blocks])(x) - x).norm(dim=2) / r[:, None]).amax(1)
        slopes.append(float(np.polyfit(r.log(), shares.log(), 1)[0]))
        require(abs(slopes[-1] - (k - 1)) < 0.05, f"degree {k}: slope {slopes[-1]}, expected {k - 1}")
    return ", ".join(f"slope {slope:.3f}" for slope in slopes)


@claim.certificate("far out stacks differ by at least ½‖(Λ − Λ')x‖, at a computed radius, depth 1 to 8")
def apart_far_out(draw: Draw) -> str:
    residual, others = _others(_kinds(SLOW_KINDS, draw.integer(1, 9), draw), draw)
    (rhos, k), apart = remainders_at_infinity(residual), {}
    for name, other in others.items():
        rhos_other, _ = remainders_at_infinity(other)
        v = nn.functional.normalize(draw.normal(20, 3), dim=1)
        # 1 + r^k ≤ 2r^k for r ≥ 1, so there both remainders together are at most half of ‖(Λ - Λ')x‖
        share = float(_linear_difference(residual, other, v).norm(dim=1).min()) / 4
        r = max(1.0, ((rhos[-1] + rhos_other[-1]) / share) ** (1 / (1 - k)))
        apart[name] = _apart(residual, other, r * v)
        require(apart[name] >= 0.5 * (1 - 1e-9), f"{name}: apart by {apart[name]}, certified 1/2")
    return ", ".join(f"{name} {value:.2f}" for name, value in apart.items())


@claim.numeric(
    "ReLU blocks among flat ones: F(tx)/t → F̂(x), without the flat blocks; → 0 if a flat skip is gone"
)
def relu_among_flat(draw: Draw) -> str:
    kinds = [RELU, "silu", *_kinds(("silu", "gelu", "relu_squared", RELU), draw.integer(0, 4), draw)]
    kinds = [kinds[i] for i in draw.permutation(len(kinds)).tolist()]
    stack, _ = absorbing_stack(kinds, 3, generator=draw)
    x, t, gone = draw.normal(20, 3), 1e-9, kinds.index("silu")
    limit = without_flat_blocks(stack)(x)
    missing = Stack([b.block if i == gone else b for i, b in enumerate(stack.blocks)])
    size = float(limit.norm(dim=1).max())
    off, left = (
        float((f(t * x) / t - g).norm(dim=1).max()) / size for f, g in ((stack, limit), (missing, 0))
    )
    require(size > 1e-3 and off < 1e-5, f"F(tx)/t is off by {off:.1e}, where the limit is {size:.1e}")
    require(left < 1e-5, f"without the skip of a flat block F'(tx)/t is {left:.1e}")
    return f"{len(kinds)} blocks, at t = {t:g}: off by {off:.1e}, left {left:.1e}"


def _off(f: nn.Module, g: nn.Module, x: Tensor) -> float:
    """The largest difference on the rows of x, beside the larger of input and output (that may be 0)."""
    value = f(x)
    return float((value - g(x)).abs().max() / torch.maximum(value.abs().max(), x.abs().max()))


@claim.control("all blocks flat, or all slow", "one ReLU block among others can lose its skip")
def one_relu_block(draw: Draw) -> str:
    depth = draw.integer(2, 9)
    kinds = _kinds(("silu", "gelu", "relu_squared"), depth, draw)
    kinds[draw.integer(0, depth)] = RELU
    off = _off(*absorbing_stack(kinds, 3, generator=draw), draw.normal(50, 3) / 10)
    require(off < 1e-10, f"a ReLU block without its skip changed the stack by {off:.1e}")
    return f"{depth} blocks, relative difference {off:.1e}"


@claim.control("all blocks flat, or all slow", "planted ReLU blocks lose all skips")
def relu_blocks_alone(draw: Draw) -> str:
    depth = draw.integer(2, 9)
    off = _off(*absorbing_stack([RELU] * depth, 3, generator=draw), draw.normal(50, 3) / 10)
    require(off < 1e-10, f"the ReLU stack without skips differs by {off:.1e}")
    return f"{depth} blocks, relative difference {off:.1e}"


def _singular_stacks() -> tuple[Stack, Stack]:
    """Bilinear blocks with skips diag(1,0) and diag(0,1), and two blocks without: both are (x₁⁴, 0)."""
    swap, first = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0]])
    one = GatedMLP(first, first, torch.tensor([[0.0], [1.0]]), "identity")  # (0, x₁²)
    two = GatedMLP(swap, swap, torch.tensor([[1.0, 0.0], [0.0, -1.0]]), "identity")  # (y₂², −y₁²)
    square = GatedMLP(first, first, first.T.clone(), "identity")  # (x₁², 0)
    skips = (torch.diag(torch.tensor(entries)) for entries in ([1.0, 0.0], [0.0, 1.0]))
    return Stack([Residual(one, next(skips)), Residual(two, next(skips))]), Stack([square, square])


@claim.control("M_L⋯M_1 ≠ 0", "skips diag(1,0), diag(0,1): both stacks are (x₁⁴, 0)")
def product_zero(draw: Draw) -> str:
    residual, free = _singular_stacks()
    whole = draw.integers(-9, 10, 50, 2).double()  # small integers: exact in float64
    require(torch.equal(residual(whole), free(whole)), "the stacks with M₂M₁ = 0 differ")
    trivial = not free(whole).any() or products_of_skips(residual)[-1].any()
    require(not trivial, "the example is trivial")
    return "difference 0 on integer points"


@claim.control(
    "flat: degree k > 1, or gated with g(0) = 0, g continuous at 0",
    "sigmoid gates: a residual-free stack equals",
)
def sigmoid_gates(draw: Draw) -> str:
    depth, d = draw.integer(2, 9), 3
    up = torch.eye(d) + draw.normal(d, d) / 10
    gate, down = draw.normal(d, d), -torch.linalg.inv(up)
    block, turned = (GatedMLP(sign * gate, sign * up, down, "sigmoid") for sign in (1, -1))
    off = _off(Stack([Residual(block)] * depth), Stack([turned] * depth), draw.normal(50, d) / 10)
    require(off < 1e-10, f"the sigmoid-gated stacks differ by {off:.1e}")
    return f"depth {depth}, relative difference {off:.1e}"


def _nothing(d: int) -> Residual:
    """The identity as a residual ReLU² block."""
    return Residual(MLP(torch.eye(d), torch.zeros(d, d), "relu_squared"))


@claim.control("flat: no biases", "residual-free ReLU² blocks with biases are the identity")
def blocks_with_biases(draw: Draw) -> str:
    depth, d = draw.integer(2, 9), 3
    free = Stack([identity_with_biases(d)] * depth)
    off = _off(Stack([_nothing(d)] * depth), free, draw.normal(50, d) / 10)
    require(off < 1e-10, f"ReLU² with biases misses the identity by {off:.1e}")
    return f"{depth} blocks, relative difference {off:.1e}"


@claim.control("all blocks flat, or all slow", "√ReLU after ReLU², both without skips, is the identity")
def degrees_on_both_sides(draw: Draw) -> str:
    eye = torch.eye(3)
    both = torch.cat([eye, -eye]), torch.cat([eye, -eye], 1)
    free = Stack([MLP(*both, "relu_squared"), MLP(*both, relu_power(0.5))])
    off = _off(Stack([_nothing(3)]), free, draw.normal(50, 3) / 10)
    require(off < 1e-12, f"√ReLU after ReLU² misses the identity by {off:.1e}")
    return f"relative difference {off:.1e}"


@claim.control("flat: degree k > 1, or gated with g(0) = 0, g continuous at 0", "step gates: each makes x")
def step_gates(draw: Draw) -> str:
    depth, rows = draw.integer(2, 9), torch.cat([torch.eye(3), -torch.eye(3)])
    free = Stack([GatedMLP(rows, rows, rows.T.clone(), STEP)] * depth)
    off = _off(Stack([_nothing(3)] * depth), free, draw.normal(50, 3))
    require(off == 0, f"step-gated blocks without skips miss the identity by {off:.1e}")
    return f"{depth} blocks, difference 0"


@claim.control(
    "slow: bounded, or degree 0 < k < 1; no gates",
    "gates |z|^(−1/2): 8 layers, 2 without skips, make (x₁, 0)",
)
def gates_of_negative_degree(draw: Draw) -> str:
    x, skip = draw.normal(50, 2) * torch.logspace(-6, 6, 50)[:, None], torch.diag(torch.tensor([1.0, 0.0]))
    stack = stack_of_inverse_roots()
    require(not products_of_skips(stack)[-1].any(), "the stack has all its skips")
    expected = Residual(_nothing(2).block, skip)(x)
    off = float(((stack(x) - expected).norm(dim=1) / expected.norm(dim=1)).max())
    require(off < 1e-13, f"the stack misses (x₁, 0) by {off:.1e}")
    return f"relative difference {off:.1e}"


@claim.control(
    "slow: bounded, or degree 0 < k < 1; no gates", "degree −1: 1/(1/x) = x, two blocks without skips"
)
def reciprocals(draw: Draw) -> str:
    eye, x = torch.eye(3), draw.normal(50, 3) * torch.logspace(-6, 6, 50)[:, None]
    off = float((Stack([MLP(eye, eye, RECIPROCAL)] * 2)(x) / x - 1).abs().max())
    require(off < 1e-15, f"1/(1/x) misses x by {off:.1e}")
    return f"relative difference {off:.1e}"
