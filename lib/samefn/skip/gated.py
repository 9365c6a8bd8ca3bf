"""Gated blocks near the origin: how flat they are, how near they come to a skip, and what biases do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import sympy
import torch
from jaxtyping import Float
from torch import Tensor

from ..activations import Activation, get
from ..arguments import Count
from ..networks import Block, GatedMLP, Residual, Stack, checked_weights

# sign(z)√|z|: continuous at 0 and vertical there
SIGNED_SQRT = Activation(
    "signed_sqrt",
    lambda z: z.sign() * z.abs().sqrt(),
    lambda z: sympy.sign(z) * sympy.sqrt(sympy.Abs(z)),
    degree=0.5,
)
# 1 for z > 0 and otherwise 0: zero at 0, but not continuous there
STEP = Activation(
    "step",
    lambda z: (z > 0).to(z.dtype),
    lambda z: sympy.Piecewise((1, z > 0), (0, True)),
    bounded=True,
    continuous=False,
)


@torch.no_grad()
def quadratic_constant(block: GatedMLP) -> float:
    """κ = ‖W_down‖₂ ‖W_up‖₂ max ‖w_i‖, ‖·‖₂ the largest singular value.

    If |g(z)| ≤ |z| for all z, then ‖G(x)‖ ≤ κ ‖x‖².  Raises ValueError if ``block`` has a gate
    bias.

    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_gated_mlp
    >>> from samefn.skip.gated import quadratic_constant
    >>> block, x = random_gated_mlp(3, 8, generator=Draw(0)), 1e-3 * Draw(1).normal(100, 3)
    >>> bool((block(x).norm(dim=1) <= quadratic_constant(block) * x.norm(dim=1) ** 2).all())
    True
    """
    if block.gate_bias is not None:
        raise ValueError("block must have no gate bias: with one it is not quadratic at 0")
    down, up = (float(torch.linalg.matrix_norm(w, 2)) for w in (block.down, block.up))
    return down * up * float(block.gate.norm(dim=1).max())


def jacobian_at_zero(f: Block | Residual | Stack) -> Float[Tensor, "d_out d_in"]:
    """The derivative of f, a network in float64, at the origin of R^d_in, by automatic differentiation.

    >>> from samefn import Residual
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_gated_mlp
    >>> from samefn.skip.gated import jacobian_at_zero
    >>> block = random_gated_mlp(2, 8, generator=Draw(0))
    >>> jacobian_at_zero(block).abs().max().item(), jacobian_at_zero(Residual(block)).tolist()
    (0.0, [[1.0, 0.0], [0.0, 1.0]])
    """
    with torch.enable_grad():  # without, torch differentiates some activations entry by entry, and warns
        return torch.func.jacrev(f)(torch.zeros(f.dim_in, dtype=torch.float64)).detach()


@torch.no_grad()
def slope_at_zero(
    f: Callable[[Tensor], Tensor], direction: Float[Tensor, "d"], radii: Float[Tensor, "n"]
) -> float:
    """Slope of log ‖f(r·direction)‖ against log r, least squares over ``radii``.

    Raises ValueError unless the radii are at least two positive numbers and f vanishes at none of them.

    >>> from samefn.skip.gated import slope_at_zero
    >>> radii = torch.tensor([0.1, 0.01, 0.001])
    >>> f"{slope_at_zero(lambda x: x**2, torch.ones(3), radii):.2f}"
    '2.00'
    """
    if len(radii) < 2 or not bool((radii > 0).all()):
        raise ValueError(f"radii must be at least two positive numbers, got {radii.tolist()}")
    sizes = f(radii[:, None] * direction).norm(dim=1)
    if not bool((sizes > 0).all()):
        raise ValueError("direction must be one along which f does not vanish: log 0 has no slope")
    return float(np.polyfit(radii.log().numpy(), sizes.log().numpy(), 1)[0])


def nearest_to_the_skip(activation: str | Activation, m: Count) -> GatedMLP:
    """A gated block of width m on the line, fitted to x on [-1, 1] by least squares in W_down.

    Gates ± from 1 to 60, in geometric progression; values u_i = 1.  Raises ValueError unless m is even.

    >>> from samefn.skip.gated import nearest_to_the_skip
    >>> x = torch.linspace(-1, 1, 201)[:, None]
    >>> bool((nearest_to_the_skip("silu", 8)(x) - x).abs().max() < 0.1)
    True
    """
    if m % 2:
        raise ValueError(f"m must be even, got {m}")
    half = torch.from_numpy(np.geomspace(1, 60, m // 2))
    gate, up = torch.cat([half, -half])[:, None], torch.ones(m, 1, dtype=torch.float64)
    x = torch.linspace(-1, 1, 2001, dtype=torch.float64)[:, None]
    hidden = get(activation)(x @ gate.T) * (x @ up.T)
    down = torch.linalg.lstsq(hidden, x, driver="gelsd").solution.T
    return GatedMLP(gate, up, down, activation)


def biased_pair(gate: Float[Tensor, "d d"], bias: Float[Tensor, "d"]) -> tuple[Residual, GatedMLP]:
    """A SwiGLU block with gate bias, width 2d, and a residual-free one of that width equal to x + block(x).

    For each j the units SiLU(w_j·x ± b_j) x_j, w_j the rows of ``gate`` and b_j the entries of ``bias``.
    Raises ValueError unless both are finite and no b_j is 0.

    >>> from samefn.functions import gap
    >>> from samefn.draw import Draw
    >>> from samefn.skip.gated import biased_pair
    >>> with_skip, without = biased_pair(torch.eye(2), torch.tensor([1.0, 2.0]))
    >>> gap(with_skip, without, Draw(0).normal(100, 2)) < 1e-14
    True
    """
    gate, bias = checked_weights("gate", gate).detach(), checked_weights("bias", bias).detach()
    if bool((bias == 0).any()):
        raise ValueError(f"bias must have no zero entry, got {bias.tolist()}")
    eye = torch.eye(len(gate), dtype=gate.dtype)
    down = torch.cat([-eye / (2 * bias), eye / (2 * bias)], 1)
    up, gates, biases = torch.cat([eye, eye]), torch.cat([gate, gate]), torch.cat([bias, -bias])
    return Residual(GatedMLP(gates, up, down, "silu", biases)), GatedMLP(-gates, up, down, "silu", -biases)
