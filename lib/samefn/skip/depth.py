"""Stacks of flat blocks, or of slow ones: their linear part, and how far they are from it.

F_l are the first l layers of a stack and Λ_l is the product of their skips.  Source: [A], Corollary 7,
and what the chapter adds to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy
import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..activations import Activation, get, monomial, relu_power
from ..arguments import Count
from ..networks import MLP, GatedMLP, Residual, Stack, random_mlp
from .absorption import flip
from .gated import SIGNED_SQRT
from .planted import plant

# --- kinds of blocks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """Blocks without biases, with one activation, ``gated`` or not.

    At every z the activation is at most |z|^k, or |z|^(k-1) for a gate, k the ``degree``.  For k > 1, and
    for 0 ≤ k < 1 without gates, a block is then at most κ‖x‖^k, see :func:`growth_constant`: flat or
    slow, with k = 0 where bounded.  A gate of degree k - 1 < 0 is unbounded near 0, and so is its block.

    >>> from samefn.skip.depth import KINDS
    >>> KINDS["silu"].degree, KINDS["silu"].gated  # a SwiGLU block is quadratic near 0
    (2, True)
    """

    activation: Activation
    degree: float
    gated: bool = False


KINDS: dict[str, Kind] = {
    "silu": Kind(get("silu"), 2, gated=True),
    "gelu": Kind(get("gelu"), 2, gated=True),
    "relu": Kind(get("relu"), 2, gated=True),
    "identity": Kind(get("identity"), 2, gated=True),
    "signed root": Kind(SIGNED_SQRT, 1.5, gated=True),
    "relu_squared": Kind(get("relu_squared"), 2),
    "relu_power(1.5)": Kind(relu_power(1.5), 1.5),
    "monomial(3)": Kind(monomial(3), 3),
    "relu_power(0.5)": Kind(relu_power(0.5), 0.5),
    "relu_power(0.75)": Kind(relu_power(0.75), 0.75),
    "tanh": Kind(get("tanh"), 0),
    "sigmoid": Kind(get("sigmoid"), 0),
}
FLAT_KINDS = tuple(name for name, kind in KINDS.items() if kind.degree > 1)
SLOW_KINDS = tuple(name for name, kind in KINDS.items() if kind.degree < 1 and not kind.gated)
RELU = "relu block"  # neither flat nor slow

# |z|^(-1/2) and 1/z, both 0 at 0: homogeneous of negative degree, for blocks that are neither
INVERSE_ROOT = Activation(
    "inverse_root",
    lambda z: torch.where(z == 0, 0, 1 / z.abs().sqrt()),
    lambda z: sympy.Piecewise((0, sympy.Eq(z, 0)), (1 / sympy.sqrt(sympy.Abs(z)), True)),
    degree=-0.5,
    continuous=False,
)
RECIPROCAL = Activation(
    "reciprocal",
    lambda z: torch.where(z == 0, 0, 1 / z),
    lambda z: sympy.Piecewise((0, sympy.Eq(z, 0)), (1 / z, True)),
    degree=-1,
    continuous=False,
)


def random_block(kind: str, d: Count, m: Count, *, generator: torch.Generator) -> MLP | GatedMLP:
    """A d → m → d block in float64 of the kind that ``KINDS`` has under that name.

    Independent normal weights of variance 1/d (up and gate) and 1/m (down).  Raises ValueError for
    another ``kind``, or unless d, m ≥ 1.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import random_block
    >>> random_block("silu", d=4, m=8, generator=Draw(0))
    GatedMLP(4 → 8 → 4, silu)
    """
    if kind not in KINDS:
        raise ValueError(f"kind must be one of {', '.join(map(repr, KINDS))}, got {kind!r}")
    block = random_mlp(d, m, KINDS[kind].activation, generator=generator)
    if not KINDS[kind].gated:
        return block
    gate = torch.randn(m, d, generator=generator, dtype=torch.float64) / d**0.5
    return GatedMLP(gate, block.up, block.down, block.activation)


@torch.no_grad()
def growth_constant(block: MLP | GatedMLP) -> tuple[float, float]:
    """(κ, k) with ‖B(x)‖ ≤ κ‖x‖^k for every x; k = 0 for bounded activations.

    Adds up ‖a_i‖ ‖u_i‖^k, or ‖a_i‖ ‖w_i‖^(k-1) ‖u_i‖ for a gated block.  Raises ValueError unless the
    block is of one of the ``KINDS``, without biases.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import growth_constant, random_block
    >>> block, x = random_block("silu", 4, 8, generator=Draw(0)), Draw(1).normal(100, 4)
    >>> kappa, k = growth_constant(block)
    >>> k, bool((block(x).norm(dim=1) <= kappa * x.norm(dim=1) ** k).all())
    (2, True)
    """
    k = _degree(block)
    down, up = block.down.norm(dim=0), block.up.norm(dim=1)
    size = block.gate.norm(dim=1) ** (k - 1) * up if isinstance(block, GatedMLP) else up**k
    return float((down * size).sum()), k


def _degree(block: MLP | GatedMLP) -> float:
    name, gated = block.activation.name, isinstance(block, GatedMLP)
    biases = (block.gate_bias,) if isinstance(block, GatedMLP) else (block.up_bias, block.down_bias)
    if any(bias is not None for bias in biases):
        raise ValueError("block must have no biases")
    degrees = {kind.activation.name: kind.degree for kind in KINDS.values() if kind.gated == gated}
    if name not in degrees:
        kind = "a gated block" if gated else "a block without gates"
        raise ValueError(f"{kind} must have one of the activations {', '.join(degrees)}, got {name}")
    return degrees[name]


# --- linear parts and remainders --------------------------------------------------------------------


def linear_part(block: nn.Module) -> Float[Tensor, "d d"]:
    """M for x ↦ Mx + B(x): the skip of a Residual, the zero matrix for a block without a skip.

    Raises TypeError unless ``block`` is a Residual, an MLP or a GatedMLP.

    >>> from samefn import Residual
    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import linear_part, random_block
    >>> block = random_block("silu", 2, 3, generator=Draw(0))
    >>> linear_part(block).tolist(), linear_part(Residual(block)).tolist()
    ([[0.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]])
    """
    if isinstance(block, Residual):
        return block.skip_matrix().detach()
    inner = inner_block(block)
    return torch.zeros(inner.dim_out, inner.dim_in, dtype=inner.up.dtype)


def inner_block(block: nn.Module) -> MLP | GatedMLP:
    """B for x ↦ Mx + B(x).  Raises as :func:`linear_part` does.

    >>> from samefn import Residual
    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import inner_block, random_block
    >>> block = random_block("silu", 2, 3, generator=Draw(0))
    >>> inner_block(Residual(block)) is block
    True
    """
    inner = block.block if isinstance(block, Residual) else block
    if not isinstance(inner, (MLP, GatedMLP)):
        raise TypeError(f"block must be a Residual, an MLP or a GatedMLP, got {type(block).__name__}")
    return inner


def products_of_skips(stack: Stack) -> list[Float[Tensor, "d d"]]:
    """I, M_1, M_2 M_1, …, with zero matrices for the residual-free blocks: L + 1 matrices for L blocks.

    Raises as :func:`linear_part` does.

    >>> from samefn import Residual, Stack
    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import products_of_skips, random_block
    >>> block = random_block("silu", 2, 3, generator=Draw(0))
    >>> stack = Stack([Residual(block, 2 * torch.eye(2)), Residual(block, 3 * torch.eye(2)), block])
    >>> [float(product[0, 0]) for product in products_of_skips(stack)]
    [1.0, 2.0, 6.0, 0.0]
    """
    products = [torch.eye(stack.dim_in, dtype=torch.float64)]
    for block in stack.blocks:
        products.append(linear_part(block) @ products[-1])
    return products


def remainders_at_infinity(stack: Stack) -> tuple[list[float], float]:
    """(ρ_1, …, ρ_L) and k with ‖F_l(x) - Λ_l x‖ ≤ ρ_l(1 + ‖x‖^k) for every x.

    The recursion of the chapter's Step 5.  Raises ValueError unless every block is of a slow kind, with
    or without a skip.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import products_of_skips, random_stacks, remainders_at_infinity
    >>> stack, *_ = random_stacks(["tanh", "tanh"], 2, generator=Draw(0))
    >>> bounds, k = remainders_at_infinity(stack)
    >>> far = 1000 * Draw(1).normal(100, 2)
    >>> rest = (stack(far) - far @ products_of_skips(stack)[-1].T).norm(dim=1)
    >>> k, bool((rest <= bounds[-1] * (1 + far.norm(dim=1) ** k)).all())
    (0, True)
    """
    growth = [growth_constant(inner_block(block)) for block in stack.blocks]
    k = max(degree for _, degree in growth)
    if k >= 1:
        raise ValueError(f"stack must have blocks of degree below 1 only, got degree {k:g}")
    rhos = [0.0]
    for block, (kappa, _), product in zip(stack.blocks, growth, products_of_skips(stack)):
        grown = kappa * (max(1, spectral_norm(product) ** k) + rhos[-1] ** k)
        rhos.append(spectral_norm(linear_part(block)) * rhos[-1] + grown)
    return rhos[1:], k


def remainders_at_zero(stack: Stack) -> tuple[list[float], float, float]:
    """(ρ_1, …, ρ_L), k and r with ‖F_l(x) - Λ_l x‖ ≤ ρ_l‖x‖^k for ‖x‖ ≤ r.

    Raises ValueError unless every block is of a flat kind, with or without a skip.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import products_of_skips, random_stacks, remainders_at_zero
    >>> stack, *_ = random_stacks(["silu", "silu"], 2, generator=Draw(0))
    >>> bounds, k, r = remainders_at_zero(stack)
    >>> near = torch.nn.functional.normalize(Draw(1).normal(100, 2)) * r
    >>> rest = (stack(near) - near @ products_of_skips(stack)[-1].T).norm(dim=1)
    >>> k, bool((rest <= bounds[-1] * near.norm(dim=1) ** k).all())
    (2, True)
    """
    growth = [growth_constant(inner_block(block)) for block in stack.blocks]
    k = min(degree for _, degree in growth)
    if k <= 1:
        raise ValueError(f"stack must have blocks of degree above 1 only, got degree {k:g}")
    rhos, radius = [0.0], 1.0
    for block, (kappa, _), product in zip(stack.blocks, growth, products_of_skips(stack)):
        size = spectral_norm(product) + rhos[-1]  # the input of this block is at most size·‖x‖
        radius = min(radius, 1 / size) if size > 0 else radius
        rhos.append(spectral_norm(linear_part(block)) * rhos[-1] + kappa * size**k)
    return rhos[1:], k, radius


def spectral_norm(matrix: Float[Tensor, "n m"]) -> float:
    """The largest singular value.

    >>> from samefn.skip.depth import spectral_norm
    >>> spectral_norm(torch.diag(torch.tensor([1.0, -3.0])))
    3.0
    """
    return float(torch.linalg.matrix_norm(matrix, 2))


# --- stacks with and without skips ------------------------------------------------------------------


def random_stacks(
    kinds: Sequence[str], d: Count, *, generator: torch.Generator
) -> tuple[Stack, Stack, Stack, int]:
    """Three stacks with one block of each of ``kinds``: with all skips, without one, without any.

    The fourth is the position of the block that has no skip in the second.  Widths are drawn from 3 to 6;
    the skips are I + a random matrix of norm 1/2, hence invertible; blocks without a skip are drawn anew.
    Raises as :func:`random_block` does, and ValueError for no kinds.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import random_stacks
    >>> with_skips, without_one, without_any, place = random_stacks(["silu"] * 3, 2, generator=Draw(0))
    >>> len(without_one.blocks), type(without_one.blocks[place]).__name__
    (3, 'GatedMLP')
    """
    if len(kinds) == 0:
        raise ValueError("kinds must name at least one block, got none")
    residual: list[nn.Module] = []
    free: list[nn.Module] = []
    for kind in kinds:
        noise = torch.randn(d, d, generator=generator, dtype=torch.float64)
        skip = torch.eye(d, dtype=torch.float64) + noise / (2 * spectral_norm(noise))
        widths = torch.randint(3, 7, (2,), generator=generator).tolist()
        residual.append(Residual(random_block(kind, d, widths[0], generator=generator), skip))
        free.append(random_block(kind, d, widths[1], generator=generator))
    gone = int(torch.randint(len(kinds), (), generator=generator))
    one_gone = Stack([*residual[:gone], free[gone], *residual[gone + 1 :]])
    return Stack(residual), one_gone, Stack(free), gone


def absorbing_stack(kinds: Sequence[str], d: Count, *, generator: torch.Generator) -> tuple[Stack, Stack]:
    """A residual stack, and one equal to it in which every ReLU block has lost its skip.

    ``kinds`` names the blocks; "relu block" is a ReLU MLP planted so that the a_i u_iᵀ of d of its units
    add up to -I, all others are residual blocks as in :func:`random_block` and stay.  Raises as that does.

    >>> from samefn.draw import Draw
    >>> from samefn.functions import gap
    >>> from samefn.skip.depth import absorbing_stack
    >>> stack, other = absorbing_stack(["silu", "relu block"], 2, generator=Draw(0))
    >>> gap(stack, other, Draw(1).normal(100, 2)) < 1e-13
    True
    >>> [type(block).__name__ for block in other.blocks]
    ['Residual', 'MLP']
    """
    residual: list[nn.Module] = []
    shorter: list[nn.Module] = []
    for kind in kinds:
        if kind == RELU:
            planted = _planted_relu(d, generator)
            residual.append(planted)
            shorter.append(flip(planted.block, range(d)))
        else:
            residual.append(Residual(random_block(kind, d, 4, generator=generator)))
            shorter.append(residual[-1])
    return Stack(residual), Stack(shorter)


def without_flat_blocks(stack: Stack) -> Stack:
    """The stack with Mx in place of Mx + B(x) for every block B but plain ReLU blocks.

    Raises as :func:`linear_part` does.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.depth import random_stacks, without_flat_blocks
    >>> stack, *_ = random_stacks(["silu"] * 2, 2, generator=Draw(0))
    >>> x, linear = Draw(1).normal(2, 2), without_flat_blocks(stack)
    >>> torch.allclose(linear(x[:1] + x[1:]), linear(x).sum(0))
    True
    """
    layers: list[nn.Module] = []
    for block in stack.blocks:
        inner = inner_block(block)
        if isinstance(inner, MLP) and inner.activation.name == "relu":
            layers.append(block)
        else:
            nothing = MLP(inner.up.detach(), torch.zeros_like(inner.down))
            layers.append(Residual(nothing, linear_part(block)))
    return Stack(layers)


def stack_of_inverse_roots() -> Stack:
    """x ↦ (x_1, 0) as eight layers in the plane, the first and the last without a skip.

    Each block is one gated unit |w·y|^(-1/2) (u·y), of degree 1/2: with a = |x_1|^(-1/2) x_1 in the first
    coordinate, the second runs through |a|^(-1/2) a, …, |a|^(-3) a.

    >>> from samefn.skip.depth import stack_of_inverse_roots
    >>> stack_of_inverse_roots()(torch.tensor([[4.0, 7.0]])).round(decimals=9).tolist()
    [[4.0, 0.0]]
    """
    e = torch.eye(2, dtype=torch.float64)

    def unit(gate: int, value: int, out: int) -> GatedMLP:
        return GatedMLP(e[gate : gate + 1], e[value : value + 1], e[:, out : out + 1].clone(), INVERSE_ROOT)

    keep = torch.diag(e[0])
    middle = [Residual(unit(0, value, 1), keep) for value in (0, 1, 1, 1, 1, 1)]
    return Stack([unit(0, 0, 0), *middle, unit(1, 0, 0)])


def _planted_relu(d: int, generator: torch.Generator) -> Residual:
    """Width 2d; the a_i u_iᵀ of the first d units add up to -I, and their rows are orthonormal, which
    keeps digits.
    """
    block = random_mlp(d, 2 * d, generator=generator)
    up = block.up.detach().clone()
    up[:d] = torch.linalg.qr(up[:d])[0]
    return plant(MLP(up, block.down), range(d))
