"""A-C7: no stack of residual blocks of a flat kind is a stack without skips.  Chapter ``skip/depth``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import sympy
import torch
from torch import Tensor, nn

from ..absorption import flip, plant
from ..activations import Activation, get, monomial, relu_power
from ..networks import MLP, GatedMLP, Residual, Stack, random_mlp
from . import Claim, Control, Evidence, require
from .homogeneous import identity_with_biases

# |g(z)| ≤ |z|^(k-1) resp. |σ(z)| ≤ |z|^k for every z: the block is at most β‖x‖^k, see growth_constant
GATED = {"silu": 2.0, "gelu": 2.0, "relu": 2.0, "identity": 2.0, "signed root": 1.5}


@cache
def _activations() -> dict[str, Activation]:
    found = {name: get(name) for name in ("silu", "gelu", "relu", "identity", "relu_squared")}
    root = lambda z: z.sign() * z.abs().sqrt()  # noqa: E731  continuous at 0, no derivative there
    found["signed root"] = Activation("signed root", root, lambda z: sympy.sign(z) * sympy.sqrt(sympy.Abs(z)))
    return found | {a.name: a for a in (relu_power(1.5), monomial(3), relu_power(0.5), relu_power(0.75))}


FLAT_MLP = ("relu_squared", "relu_power(1.5)", "monomial(3)")
FLAT_KINDS = (*GATED, *FLAT_MLP)
SLOW_KINDS = ("relu_power(0.5)", "relu_power(0.75)", "tanh", "sigmoid")


def random_block(kind: str, d: int, m: int, generator: torch.Generator) -> MLP | GatedMLP:
    """A d → m → d block: gated for the names in GATED, otherwise an MLP with that activation.

    Independent normal weights of variance 1/d (up and gate) and 1/m (down).
    """
    block = random_mlp(d, m, _activations().get(kind, kind), generator=generator)
    if kind not in GATED:
        return block
    gate = torch.randn(m, d, generator=generator, dtype=torch.float64) / d**0.5
    return GatedMLP(gate, block.up, block.down, block.activation)


def _degree(block: MLP | GatedMLP) -> float:
    """k for which the block is at most β‖x‖^k; 0 for bounded activations."""
    if isinstance(block, GatedMLP):
        return GATED[block.activation.name]
    return 0.0 if block.activation.bounded else float(block.activation.degree)


def growth_constant(block: MLP | GatedMLP) -> tuple[float, float]:
    """(β, k) with ‖B(x)‖ ≤ β‖x‖^k for every x, for the kinds of this module.

    Adds up ‖a_i‖ ‖u_i‖^k, or ‖a_i‖ ‖w_i‖^(k-1) ‖u_i‖ for a gated block, whose gate satisfies |g(z)| ≤ |z|^(k-1).
    """
    k = _degree(block)
    down, up = block.down.detach().norm(dim=0), block.up.detach().norm(dim=1)
    size = block.gate.detach().norm(dim=1) ** (k - 1) * up if isinstance(block, GatedMLP) else up**k
    return float((down * size).sum()), k


def linear_part(block: nn.Module) -> Tensor:
    """M for x ↦ Mx + B(x), the zero matrix for a residual-free block."""
    if isinstance(block, Residual):
        return block.skip_matrix().detach()
    return torch.zeros(block.dim_out, block.dim_in, dtype=torch.float64)


def products_of_skips(stack: Stack) -> list[Tensor]:
    """I, M_1, M_2 M_1, ..., with zero matrices for the residual-free blocks."""
    products = [torch.eye(stack.dim_in, dtype=torch.float64)]
    for block in stack.blocks:
        products.append(linear_part(block) @ products[-1])
    return products


def remainders_at_infinity(stack: Stack) -> tuple[list[float], float]:
    """(ρ_1, ..., ρ_L) and k with ‖F_l(x) - N_l x‖ ≤ ρ_l(1 + ‖x‖^k) for every x.

    F_l are the first l blocks and N_l is the product of their skips.  For blocks of degree below 1
    and bounded ones; the recursion of the chapter's Step 5.
    """
    k = max(_degree(_inner(block)) for block in stack.blocks)
    rhos = [0.0]
    for block, product in zip(stack.blocks, products_of_skips(stack)):
        beta = growth_constant(_inner(block))[0]
        rhos.append(_norm(linear_part(block)) * rhos[-1] + beta * (1 + _norm(product) ** k + rhos[-1] ** k))
    return rhos[1:], k


def remainders_at_zero(stack: Stack) -> tuple[list[float], float, float]:
    """(ρ_1, ..., ρ_L), k and r with ‖F_l(x) - N_l x‖ ≤ ρ_l‖x‖^k for ‖x‖ ≤ r; all degrees above 1."""
    k = min(_degree(_inner(block)) for block in stack.blocks)
    rhos, radius = [0.0], 1.0
    for block, product in zip(stack.blocks, products_of_skips(stack)):
        size = _norm(product) + rhos[-1]  # the input of this block is at most size·‖x‖
        radius = min(radius, 1 / size) if size > 0 else radius
        rhos.append(_norm(linear_part(block)) * rhos[-1] + growth_constant(_inner(block))[0] * size**k)
    return rhos[1:], k, radius


def _norm(matrix: Tensor) -> float:
    return float(torch.linalg.matrix_norm(matrix, 2))


def _inner(block: nn.Module) -> MLP | GatedMLP:
    return block.block if isinstance(block, Residual) else block


def random_stacks(kinds: Sequence[str], d: int, generator: torch.Generator) -> tuple[Stack, Stack, Stack, int]:
    """Stacks with one block of each of ``kinds``: residual, the same with one block replaced by a residual-free one,
    and residual-free; and the position of the replaced block.

    Widths are drawn from 3 to 6; the skips are I + a random matrix of norm 1/2, hence invertible.
    """
    residual: list[nn.Module] = []
    free: list[nn.Module] = []
    for kind in kinds:
        noise = torch.randn(d, d, generator=generator, dtype=torch.float64)
        skip = torch.eye(d, dtype=torch.float64) + noise / (2 * _norm(noise))
        widths = torch.randint(3, 7, (2,), generator=generator).tolist()
        residual.append(Residual(random_block(kind, d, widths[0], generator), skip))
        free.append(random_block(kind, d, widths[1], generator))
    gone = int(torch.randint(len(kinds), (), generator=generator))
    return Stack(residual), Stack([*residual[:gone], free[gone], *residual[gone + 1 :]]), Stack(free), gone


def prefixes(stack: Stack, x: Tensor) -> Tensor:
    """The outputs after 1, 2, ..., L blocks, stacked along a new first axis."""
    outputs = []
    for block in stack.blocks:
        x = block(x)
        outputs.append(x)
    return torch.stack(outputs)


def jacobians_at_zero(stack: Stack) -> Tensor:
    """The Jacobians at 0 of the first 1, 2, ..., L blocks, by automatic differentiation; shape (L, d, d)."""
    return torch.func.jacrev(lambda x: prefixes(stack, x))(torch.zeros(stack.dim_in, dtype=torch.float64))


def _draw(kinds: Sequence[str], depth: int, generator: torch.Generator) -> list[str]:
    return [kinds[i] for i in torch.randint(len(kinds), (depth,), generator=generator).tolist()]


def _at_radius(d: int, radius: float, generator: torch.Generator) -> Tensor:
    x = torch.randn(20, d, generator=generator, dtype=torch.float64)
    return radius * x / x.norm(dim=1, keepdim=True)


@cache
def _symbolic() -> str:
    """d/dx at 0 of two-block stacks on the line with weights left as letters."""
    x = sympy.Symbol("x", real=True)
    weights = sympy.symbols("w1 u1 a1 w2 u2 a2 M1 M2", real=True)
    w1, u1, a1, w2, u2, a2, m1, m2 = weights
    for name in ("silu", "gelu", "identity"):
        g = get(name).expression
        inner = lambda t: a1 * g(w1 * t) * u1 * t  # noqa: B023, E731
        outer = lambda t: a2 * g(w2 * t) * u2 * t  # noqa: B023, E731
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
    for c, skip in zip(coefficients, skips):
        p = c * np.convolve(p, p) + skip * np.concatenate([p, [Fraction(0)] * (len(p) - 1)])
    return list(p)


def evidence(seed: int) -> Iterator[Evidence]:
    generator, rng = torch.Generator().manual_seed(seed), np.random.default_rng(seed)

    yield Evidence("exact", "two blocks on the line, weights as letters: derivative at 0 (SwiGLU, GeGLU, bilinear)", _symbolic())

    for depth in range(1, 5):
        c = [Fraction(int(n), 2) for n in rng.choice([-3, -2, -1, 1, 2, 3], depth)]
        skips = [Fraction(int(n), 2) for n in rng.choice([-3, -2, -1, 1, 2, 3], depth)]
        linear = _polynomial(c, skips)[1]
        require(linear == np.prod(skips), f"linear coefficient {linear} with skips {skips}")
        free = _polynomial(c, [Fraction(0)] * depth)
        lowest = next(power for power, value in enumerate(free) if value)
        require(lowest == 2**depth, f"depth {depth}: the residual-free polynomial starts at x^{lowest}")
        skips[int(rng.integers(depth))] = Fraction(0)
        require(_polynomial(c, skips)[:2] == [0, 0], "a linear term is left although one skip is gone")
    yield Evidence("exact", "bilinear stacks of depth 1 to 4 as rational polynomials", "linear term ∏M; without skips, lowest power 2^L")

    smooth = [kind for kind in FLAT_KINDS if kind != "signed root"]
    residual, one_gone, free, gone = random_stacks(_draw(smooth, 8, generator), 3, generator)
    expected = torch.stack(products_of_skips(residual)[1:])
    worst = float((jacobians_at_zero(residual) - expected).abs().max())
    require(worst < 1e-13, f"the Jacobian at 0 is off the product of the skips by {worst:.1e}")  # 8 products of 3×3
    for depth, (some, none) in enumerate(zip(jacobians_at_zero(one_gone), jacobians_at_zero(free)), 1):
        require(not none.any(), f"depth {depth}: derivative at 0 without skips")
        require(bool(some.any()) is (depth <= gone), f"depth {depth}: wrong derivative with block {gone} free")
    yield Evidence("numeric", "mixed stacks of depth 1 to 8: Jacobian at 0 is ∏M, or 0 if one skip is missing", f"{worst:.1e}, exactly 0")

    residual, one_gone, free, gone = random_stacks(_draw(FLAT_KINDS, 4, generator), 3, generator)
    rhos, k, radius = remainders_at_zero(residual)
    least = [float(torch.linalg.svdvals(product)[-1]) for product in products_of_skips(residual)[1:]]
    apart = []
    for other, start in ((one_gone, gone), (free, 0)):
        rhos_other, k_other, radius_other = remainders_at_zero(other)
        # at this radius both remainders together are at most half of ‖Nx‖, for every depth
        share = min(l / (2 * (p + q)) for l, p, q in zip(least, rhos, rhos_other))
        r = min(radius, radius_other, share ** (1 / (min(k, k_other) - 1)))
        apart.append(_apart(residual, other, r, least, start, generator))
    measured = f"‖F − F'‖/‖x‖ ≥ {min(apart):.2f} measured, depth 1 to 4"
    yield Evidence("certificate", "near 0 the stacks differ by at least ‖Nx‖/2, at a computed radius", measured)

    residual, one_gone, free, gone = random_stacks(_draw(SLOW_KINDS, 8, generator), 3, generator)
    rhos, k = remainders_at_infinity(residual)
    x = torch.cat([_at_radius(3, radius, generator) for radius in (1e-3, 1.0, 1e4)])
    linear = x @ torch.stack(products_of_skips(residual)[1:]).mT
    bound = torch.tensor(rhos)[:, None] * (1 + x.norm(dim=1) ** k)
    tightest = float(((prefixes(residual, x) - linear).norm(dim=2) / bound).max())
    require(tightest <= 1, f"a remainder exceeds its bound by the factor {tightest:.2f}")
    least = [float(torch.linalg.svdvals(product)[-1]) for product in products_of_skips(residual)[1:]]
    apart = []
    for other, start in ((one_gone, gone), (free, 0)):
        rhos_other, k_other = remainders_at_infinity(other)
        # 1 + r^k ≤ 2r^k for r ≥ 1, so from this radius on the remainders are at most half of ‖Nx‖
        share = max(4 * (p + q) / l for l, p, q in zip(least, rhos, rhos_other))
        r = max(1.0, share ** (1 / (1 - max(k, k_other))))
        apart.append(_apart(residual, other, r, least, start, generator))
    measured = f"remainder at most {tightest:.2f} of its bound; ‖F − F'‖/‖x‖ ≥ {min(apart):.2f} far out"
    yield Evidence("certificate", "degree below 1 or bounded, depth 1 to 8: F(x) = Nx + O(1 + ‖x‖^k)", measured)


def _apart(f: Stack, g: Stack, radius: float, least: list[float], start: int, generator: torch.Generator) -> float:
    """min ‖F - G‖/‖x‖ at that radius over the prefixes from ``start`` on; at least half of ``least`` or ClaimFailed."""
    x = _at_radius(f.dim_in, radius, generator)
    gaps = (prefixes(f, x) - prefixes(g, x)).norm(dim=2).amin(1) / radius
    for depth, (gap, low) in enumerate(zip(gaps.tolist(), least), 1):
        certified = low / 2 * (1 - 1e-9)  # rounding
        require(depth <= start or gap >= certified, f"depth {depth}: {gap:.3f} apart, certified {low / 2:.3f}")
    return float(gaps[start:].min())


def absorbing_stack(kinds: Sequence[str], d: int, generator: torch.Generator) -> tuple[Stack, Stack]:
    """A residual stack, and one equal to it in which every ReLU block has lost its skip.

    ``kinds`` names the blocks; "relu block" is a ReLU MLP planted so that d of its units add up to
    -I, all others are residual blocks as in :func:`random_block` and stay.
    """
    residual: list[nn.Module] = []
    shorter: list[nn.Module] = []
    for kind in kinds:
        if kind == "relu block":
            block = random_mlp(d, 2 * d, generator=generator)
            up = block.up.detach().clone()
            up[:d] = torch.linalg.qr(up[:d])[0]  # orthonormal rows, so that the plant is well conditioned
            planted = plant(MLP(up, block.down), tuple(range(d)))
            residual.append(planted)
            shorter.append(flip(planted.block, tuple(range(d))))
        else:
            residual.append(Residual(random_block(kind, d, 4, generator)))
            shorter.append(residual[-1])
    return Stack(residual), Stack(shorter)


def singular_stacks() -> tuple[Stack, Stack]:
    """Two bilinear residual blocks with skips diag(1,0) and diag(0,1), and two residual-free ones: both (x₁⁴, 0)."""
    t = lambda rows: torch.tensor(rows, dtype=torch.float64)  # noqa: E731
    first = Residual(GatedMLP(t([[1, 0]]), t([[1, 0]]), t([[0], [1]]), "identity"), t([[1, 0], [0, 0]]))
    squares = GatedMLP(t([[0, 1], [1, 0]]), t([[0, 1], [1, 0]]), t([[1, 0], [0, -1]]), "identity")  # (y₂², −y₁²)
    second = Residual(squares, t([[0, 0], [0, 1]]))
    square = GatedMLP(t([[1, 0]]), t([[1, 0]]), t([[1], [0]]), "identity")
    return Stack([first, second]), Stack([square, square])


def _relative(f: nn.Module, g: nn.Module, x: Tensor) -> float:
    """The largest difference on the rows of x, beside the larger of input and output: a ReLU stack may well give 0."""
    with torch.no_grad():
        value = f(x)
        return float((value - g(x)).abs().max() / torch.maximum(value.abs().max(), x.abs().max()))


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    depth, d = int(torch.randint(2, 9, (), generator=generator)), 3
    x = torch.randn(50, d, generator=generator, dtype=torch.float64) / 10

    kinds = _draw(("silu", "gelu", "relu_squared"), depth, generator)
    kinds[int(torch.randint(depth, (), generator=generator))] = "relu block"
    residual, shorter = absorbing_stack(kinds, d, generator)
    gap = _relative(residual, shorter, x)
    require(gap < 1e-10, f"a ReLU block without its skip changed the stack by {gap:.1e}")
    yield Control("flat blocks only", f"one ReLU block among {depth} blocks can lose its skip", f"relative difference {gap:.1e}")

    residual, free = absorbing_stack(["relu block"] * depth, d, generator)
    gap = _relative(residual, free, x)
    require(gap < 1e-10, f"the ReLU stack without skips differs by {gap:.1e}")
    yield Control("flat blocks only", f"{depth} planted ReLU blocks lose all skips", f"relative difference {gap:.1e}")

    residual, free = singular_stacks()
    whole = torch.randint(-9, 10, (50, 2), generator=generator).to(torch.float64)  # small integers: exact in float64
    require(torch.equal(residual(whole), free(whole)), "the stacks with M₂M₁ = 0 differ")
    require(bool(free(whole).any()) and not products_of_skips(residual)[-1].any(), "the example is trivial")
    yield Control("M_L⋯M_1 ≠ 0", "skips diag(1,0), diag(0,1): both stacks are (x₁⁴, 0)", "difference 0 on integer points")

    up = torch.eye(d, dtype=torch.float64) + torch.randn(d, d, generator=generator, dtype=torch.float64) / 10
    gate = torch.randn(d, d, generator=generator, dtype=torch.float64)
    block = GatedMLP(gate, up, -torch.linalg.inv(up), "sigmoid")
    residual, free = Stack([Residual(block)] * depth), Stack([flip(block, tuple(range(d)))] * depth)
    gap = _relative(residual, free, x)
    require(gap < 1e-10, f"the sigmoid-gated stacks differ by {gap:.1e}")
    yield Control("g(0) = 0", f"sigmoid gates, depth {depth}: a residual-free stack equals", f"relative difference {gap:.1e}")

    eye = torch.eye(d, dtype=torch.float64)
    identity = identity_with_biases(d)
    nothing = Residual(MLP(eye, 0 * eye, "relu_squared"))
    gap = _relative(Stack([nothing] * depth), Stack([identity] * depth), x)
    require(gap < 1e-10, f"ReLU² with biases misses the identity by {gap:.1e}")
    yield Control("no biases", f"{depth} residual-free ReLU² blocks with biases are the identity", f"relative difference {gap:.1e}")

    both = torch.cat([eye, -eye]), torch.cat([eye, -eye], 1)
    squared_then_root = Stack([MLP(*both, name) for name in ("relu_squared", _activations()["relu_power(0.5)"])])
    gap = _relative(Stack([nothing]), squared_then_root, x)
    require(gap < 1e-12, f"√ReLU after ReLU² misses the identity by {gap:.1e}")
    yield Control("all degrees on one side of 1", "√ReLU after ReLU², both without skips, is the identity", f"relative difference {gap:.1e}")


CLAIM = Claim(
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
    evidence=evidence,
    controls=controls,
)
