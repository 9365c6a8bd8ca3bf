"""A-C7: no stack of residual blocks of a flat kind is a stack without skips.  Chapter ``skip/depth``."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import sympy
import torch
from torch import Tensor, nn

from ...activations import get, relu_power
from ...draw import Draw
from ...networks import MLP, GatedMLP, Residual, Stack
from ...skip.absorption import flip
from ...skip.depth import (
    FLAT_KINDS,
    RELU,
    SLOW_KINDS,
    absorbing_stack,
    products_of_skips,
    random_stacks,
    remainders_at_infinity,
    remainders_at_zero,
)
from ...skip.homogeneous import identity_with_biases
from .. import Claim, require

claim = Claim(
    id="A-C7",
    title="No stack of residual gated, or homogeneous, blocks is a stack without skips",
    source="[A], Corollary 7; degree below 1, bounded, and a single missing skip: ours",
    hypotheses=(
        "every block gated with g(0) = 0, g continuous at 0, or homogeneous of degree k > 1",
        "or every block homogeneous of degree 0 < k < 1, or bounded",
        "the product of the skips M_L⋯M_1 is not 0",
        "no biases (bounded blocks may have them)",
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


def _polynomial(coefficients: Sequence[Fraction], skips: Sequence[Fraction]) -> list[Fraction]:
    """The composition of x ↦ Mx + cx² over the pairs (c, M) on the line, as coefficients of x⁰, x¹, ..."""
    p = np.array([Fraction(0), Fraction(1)], dtype=object)
    for c, skip in zip(coefficients, skips, strict=True):
        p = c * np.convolve(p, p) + skip * np.concatenate([p, [Fraction(0)] * (len(p) - 1)])
    return list(p)


@claim.exact("bilinear stacks of depth 1 to 4 as rational polynomials")
def rational_polynomials(draw: Draw) -> str:
    halves = [Fraction(n, 2) for n in (-3, -2, -1, 1, 2, 3)]
    for depth in range(1, 5):
        c, skips = ([draw.choice(halves) for _ in range(depth)] for _ in range(2))
        linear = _polynomial(c, skips)[1]
        require(linear == np.prod(skips), f"linear coefficient {linear} with skips {skips}")
        free = _polynomial(c, [Fraction(0)] * depth)
        lowest = next(power for power, value in enumerate(free) if value)
        require(lowest == 2**depth, f"depth {depth}: the residual-free polynomial starts at x^{lowest}")
        skips[draw.integer(0, depth)] = Fraction(0)
        require(_polynomial(c, skips)[:2] == [0, 0], "a linear term is left although one skip is gone")
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


def _least(stack: Stack) -> list[float]:
    """The least singular value of N_l for every l."""
    return [float(torch.linalg.svdvals(product)[-1]) for product in products_of_skips(stack)[1:]]


def _at_radius(d: int, radius: float, draw: Draw) -> Tensor:
    x = draw.normal(20, d)
    return radius * x / x.norm(dim=1, keepdim=True)


def _apart(f: Stack, g: Stack, radius: float, start: int, draw: Draw) -> float:
    """min ‖F - G‖/‖x‖ at that radius, over the prefixes from ``start`` on; all must be at least ‖N_l x‖/2."""
    x = _at_radius(f.dim_in, radius, draw)
    gaps = (_prefixes(f, x) - _prefixes(g, x)).norm(dim=2)
    linear = (x @ torch.stack(products_of_skips(f)[1:]).mT).norm(dim=2)
    for depth, share in enumerate((gaps / linear).amin(1).tolist(), 1):
        far = depth <= start or share >= 0.5 * (1 - 1e-9)  # rounding
        require(far, f"depth {depth}: apart by {share:.3f} of ‖Nx‖, certified 1/2")
    return float(gaps[start:].min()) / radius


@claim.certificate("near 0 the stacks differ by at least ‖Nx‖/2, at a computed radius")
def apart_near_zero(draw: Draw) -> str:
    residual, one_gone, free, gone = random_stacks(_kinds(FLAT_KINDS, 4, draw), 3, generator=draw)
    rhos, k, radius = remainders_at_zero(residual)
    apart = []
    for other, start in ((one_gone, gone), (free, 0)):
        others, k_other, radius_other = remainders_at_zero(other)
        # at this radius both remainders together are at most half of ‖Nx‖, for every depth
        sizes = zip(_least(residual), rhos, others, strict=True)
        share = min(least / (2 * (p + q)) for least, p, q in sizes)
        r = min(radius, radius_other, share ** (1 / (min(k, k_other) - 1)))
        apart.append(_apart(residual, other, r, start, draw))
    return f"‖F − F'‖/‖x‖ ≥ {min(apart):.2f} measured, depth 1 to 4"


@claim.certificate("degree below 1 or bounded, depth 1 to 8: F(x) = Nx + O(1 + ‖x‖^k)")
def linear_far_out(draw: Draw) -> str:
    residual, *_ = random_stacks(_kinds(SLOW_KINDS, 8, draw), 3, generator=draw)
    rhos, k = remainders_at_infinity(residual)
    x = torch.cat([_at_radius(3, radius, draw) for radius in (1e-3, 1.0, 1e4)])
    linear = x @ torch.stack(products_of_skips(residual)[1:]).mT
    bound = torch.tensor(rhos)[:, None] * (1 + x.norm(dim=1) ** k)
    tightest = float(((_prefixes(residual, x) - linear).norm(dim=2) / bound).max())
    require(tightest <= 1, f"a remainder exceeds its bound by the factor {tightest:.2f}")
    return f"remainder at most {tightest:.2f} of its bound"


@claim.certificate("far out the stacks differ by at least ‖Nx‖/2, at a computed radius, depth 1 to 8")
def apart_far_out(draw: Draw) -> str:
    residual, one_gone, free, gone = random_stacks(_kinds(SLOW_KINDS, 8, draw), 3, generator=draw)
    rhos, k = remainders_at_infinity(residual)
    apart = []
    for other, start in ((one_gone, gone), (free, 0)):
        others, k_other = remainders_at_infinity(other)
        # 1 + r^k ≤ 2r^k for r ≥ 1, so from this radius on the remainders are at most half of ‖Nx‖
        sizes = zip(_least(residual), rhos, others, strict=True)
        share = max(4 * (p + q) / least for least, p, q in sizes)
        r = max(1.0, share ** (1 / (1 - max(k, k_other))))
        apart.append(_apart(residual, other, r, start, draw))
    return f"‖F − F'‖/‖x‖ ≥ {min(apart):.2f} far out"


def _off(f: nn.Module, g: nn.Module, x: Tensor) -> float:
    """The largest difference on the rows of x, beside the larger of input and output (that may be 0)."""
    value = f(x)
    return float((value - g(x)).abs().max() / torch.maximum(value.abs().max(), x.abs().max()))


@claim.control("flat blocks only", "one ReLU block among others can lose its skip")
def one_relu_block(draw: Draw) -> str:
    depth = draw.integer(2, 9)
    kinds = _kinds(("silu", "gelu", "relu_squared"), depth, draw)
    kinds[draw.integer(0, depth)] = RELU
    off = _off(*absorbing_stack(kinds, 3, generator=draw), draw.normal(50, 3) / 10)
    require(off < 1e-10, f"a ReLU block without its skip changed the stack by {off:.1e}")
    return f"{depth} blocks, relative difference {off:.1e}"


@claim.control("flat blocks only", "planted ReLU blocks lose all skips")
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


@claim.control("g(0) = 0", "sigmoid gates: a residual-free stack equals")
def sigmoid_gates(draw: Draw) -> str:
    depth, d = draw.integer(2, 9), 3
    up = torch.eye(d) + draw.normal(d, d) / 10
    block = GatedMLP(draw.normal(d, d), up, -torch.linalg.inv(up), "sigmoid")
    residual, free = Stack([Residual(block)] * depth), Stack([flip(block, tuple(range(d)))] * depth)
    off = _off(residual, free, draw.normal(50, d) / 10)
    require(off < 1e-10, f"the sigmoid-gated stacks differ by {off:.1e}")
    return f"depth {depth}, relative difference {off:.1e}"


def _nothing(d: int) -> Residual:
    """The identity as a residual ReLU² block."""
    return Residual(MLP(torch.eye(d), torch.zeros(d, d), "relu_squared"))


@claim.control("no biases", "residual-free ReLU² blocks with biases are the identity")
def blocks_with_biases(draw: Draw) -> str:
    depth, d = draw.integer(2, 9), 3
    free = Stack([identity_with_biases(d)] * depth)
    off = _off(Stack([_nothing(d)] * depth), free, draw.normal(50, d) / 10)
    require(off < 1e-10, f"ReLU² with biases misses the identity by {off:.1e}")
    return f"{depth} blocks, relative difference {off:.1e}"


@claim.control("all degrees on one side of 1", "√ReLU after ReLU², both without skips, is the identity")
def degrees_on_both_sides(draw: Draw) -> str:
    eye = torch.eye(3)
    both = torch.cat([eye, -eye]), torch.cat([eye, -eye], 1)
    free = Stack([MLP(*both, "relu_squared"), MLP(*both, relu_power(0.5))])
    off = _off(Stack([_nothing(3)]), free, draw.normal(50, 3) / 10)
    require(off < 1e-12, f"√ReLU after ReLU² misses the identity by {off:.1e}")
    return f"relative difference {off:.1e}"
