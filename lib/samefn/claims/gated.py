"""A-P6: a gated block whose gate is continuous and zero at 0 never absorbs a skip.  Chapter ``skip/gated``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import sympy
import torch
from torch import Tensor

from ..absorption import absorb
from ..activations import Activation, get
from ..networks import GatedMLP, Residual, random_gated_mlp
from . import Claim, Control, Evidence, require

SIGNED_SQRT = Activation(
    "signed_sqrt", lambda z: z.sign() * z.abs().sqrt(), lambda z: sympy.sign(z) * sympy.sqrt(sympy.Abs(z)), degree=0.5
)
STEP = Activation(
    "step", lambda z: (z > 0).to(z.dtype), lambda z: sympy.Heaviside(z, 0), bounded=True, continuous=False
)


def quadratic_constant(block: GatedMLP) -> float:
    """κ = ‖W_down‖ ‖W_up‖ max ‖w_i‖ with spectral norms.

    If |g(z)| ≤ |z| and there is no gate bias, then ‖G(x)‖ ≤ κ ‖x‖².
    """
    norm = lambda w: float(torch.linalg.matrix_norm(w.detach(), 2))  # noqa: E731
    return norm(block.down) * norm(block.up) * float(block.gate.detach().norm(dim=1).max())


def jacobian_at_zero(f: torch.nn.Module) -> Tensor:
    """The derivative of f at the origin, by automatic differentiation; shape (d_out, d_in)."""
    return torch.func.jacrev(f)(torch.zeros(f.dim_in, dtype=torch.float64)).detach()


def slope_at_zero(f: torch.nn.Module, direction: Tensor, radii: Tensor) -> float:
    """Slope of log ‖f(r·direction)‖ against log r, least squares over ``radii``."""
    sizes = f(radii[:, None] * direction).detach().norm(dim=1)
    return float(np.polyfit(radii.log().numpy(), sizes.log().numpy(), 1)[0])


def biased_pair(gate: Tensor, bias: Tensor) -> tuple[Residual, GatedMLP]:
    """A SwiGLU block with gate bias, of width 2d, and a residual-free one of that width that equals x + block(x).

    ``gate`` has shape (d, d), ``bias`` (d,) without zeros: for each j the units SiLU(w_j·x ± b_j) x_j.
    """
    eye = torch.eye(len(gate), dtype=gate.dtype)
    down = torch.cat([-eye / (2 * bias), eye / (2 * bias)], 1)
    up, gates, biases = torch.cat([eye, eye]), torch.cat([gate, gate]), torch.cat([bias, -bias])
    return Residual(GatedMLP(gates, up, down, "silu", biases)), GatedMLP(-gates, up, down, "silu", -biases)


@cache
def _taylor() -> str:
    t, p, q = sympy.symbols("t p q", real=True)
    found = []
    for name in ("silu", "gelu"):
        g = get(name).expression
        unit = g(t * p) * t * q  # one unit along the ray tx, with p = w·x and q = u·x
        coefficients = [sympy.simplify(sympy.diff(unit, t, n).subs(t, 0) / sympy.factorial(n)) for n in range(3)]
        require(coefficients == [0, 0, p * q / 2], f"the Taylor coefficients of a {name} unit are {coefficients}")
        found.append(name)
    relu = get("relu").expression
    s = sympy.Symbol("s", positive=True)
    defect = sympy.simplify((relu(s * p) * s * q - s**2 * relu(p) * q).subs(sympy.Abs(s * p), s * sympy.Abs(p)))
    require(defect == 0, f"a ReGLU unit is not of degree 2: {defect}")
    return "½ t² (w·x)(u·x) for SiLU and GELU; t² ReLU(w·x)(u·x)"


@cache
def _limits() -> str:
    z = sympy.Symbol("z", positive=True)
    for name, g in {"signed √": sympy.sqrt(z), "1/(1 + |log z|)": 1 / (1 - sympy.log(z))}.items():
        require(sympy.limit(g, z, 0, "+") == 0, f"{name} is not continuous at 0")
        require(sympy.limit(g / z, z, 0, "+") == sympy.oo, f"{name} has a derivative at 0")
    return "limit of g is 0, of g(z)/z is ∞"


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    yield Evidence("exact", "a unit along tx has no term below t²", _taylor())
    yield Evidence("exact", "gates that are continuous at 0 and not differentiable there exist", _limits())

    for name in ("silu", "gelu", "gelu_tanh", "mish"):
        block, skip = random_gated_mlp(4, 9, name, generator=generator), torch.outer(normal(4), normal(4))
        residual, other = Residual(block, skip), random_gated_mlp(4, 15, name, generator=generator)
        # exact zeros meet exact zeros in the chain rule, so no rounding occurs on either side
        require(torch.equal(jacobian_at_zero(residual), skip), f"{name}: the derivative at 0 of Mx + G is not M")
        require(not jacobian_at_zero(other).any(), f"{name}: the derivative at 0 of G' is not 0")
        found = absorb(residual)
        require((found.absorbed, found.reason) == (False, "linearisation"), f"absorb does not refuse {name}: {found}")
    yield Evidence("numeric", "derivatives at 0 are M (of rank one) and 0, by automatic differentiation", "difference 0")

    least = []
    for name in ("silu", "gelu", "relu"):
        block = random_gated_mlp(3, 6, name, generator=generator)
        x = normal(200, 3)
        gate, up = normal(24, 3), normal(24, 3)
        hidden = get(name)(x @ gate.T) * (x @ up.T)
        down = torch.linalg.lstsq(hidden, x + block(x).detach(), driver="gelsd").solution.T
        fitted = GatedMLP(gate, up, down, name)
        kappa = quadratic_constant(block) + quadratic_constant(fitted)
        y = torch.nn.functional.normalize(normal(100, 3), dim=1) / (2 * kappa)
        ratio = float(((y + block(y) - fitted(y)).norm(dim=1) / y.norm(dim=1)).min())
        require(ratio >= 0.5 * (1 - 1e-9), f"{name}: at radius 1/2κ the relative difference is {ratio}")
        quotient = block(x).norm(dim=1) / (quadratic_constant(block) * x.norm(dim=1) ** 2)
        require(float(quotient.max()) < 1 + 1e-12, f"{name}: ‖G(x)‖ exceeds κ‖x‖², quotient {float(quotient.max())}")
        least.append(f"{name}: radius {1 / (2 * kappa):.1e}, {ratio:.3f}")
    statement = "at ‖x‖ = 1/2κ, κ from the norms of the weights, a fitted block is off by at least ½‖x‖"
    yield Evidence("certificate", statement, "; ".join(least))

    slopes, radii = [], torch.logspace(-8, -5, 7, dtype=torch.float64)
    for gate, expected in (("silu", 2.0), ("gelu", 2.0), ("relu", 2.0), (SIGNED_SQRT, 1.5)):
        block = random_gated_mlp(4, 9, gate, generator=generator)
        slope = slope_at_zero(block, block.gate[0], radii)  # a direction in which some gate is open
        require(abs(slope - expected) < 1e-3, f"{get(gate).name}: slope {slope}, expected {expected}")
        slopes.append(f"{get(gate).name} {slope:.4f}")
    yield Evidence("numeric", "‖G(x)‖ falls like ‖x‖², and like ‖x‖^1.5 for the gate sign(z)√|z|", ", ".join(slopes))


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    x = normal(300, 3)

    def gap(f, g) -> float:
        return float((f(x) - g(x)).abs().max() / f(x).abs().max())

    up = torch.linalg.qr(normal(3, 3)).Q
    first_order = GatedMLP(normal(3, 3), up, 2 * up.T, "sigmoid")
    miss = float((jacobian_at_zero(first_order) - torch.eye(3)).abs().max())
    require(miss < 1e-14, f"the sigmoid block's derivative at 0 is not I: {miss:.1e}")
    slope = slope_at_zero(_Minus(first_order), normal(3), torch.logspace(-4, -2, 5, dtype=torch.float64))
    require(abs(slope - 2) < 0.05, f"the sigmoid block leaves x with slope {slope}")
    yield Control("g(0) = 0", "a sigmoid-gated block equals x to first order", f"derivative I, rest of slope {slope:.3f}")

    block = random_gated_mlp(3, 7, "sigmoid", generator=generator)
    down = block.down.detach().clone()
    down[:, [1, 4, 6]] = -torch.linalg.inv(block.up.detach()[[1, 4, 6]])
    residual = Residual(GatedMLP(block.gate, block.up, down, "sigmoid"))
    found = absorb(residual)
    require(found.absorbed is True and found.flipped == (1, 4, 6), f"the planted sigmoid block did not absorb: {found}")
    miss = gap(residual, found.network)
    require(miss < 1e-9, f"the flipped sigmoid block differs by {miss:.1e}")
    yield Control("g(0) = 0, exactly", "sigmoid-gated blocks with P_S = −I absorb", f"relative difference {miss:.1e}")

    residual, turned = biased_pair(normal(3, 3), 0.5 + torch.rand(3, generator=generator, dtype=torch.float64))
    miss = gap(residual, turned)
    require(residual.block.width == turned.width and miss < 1e-12, f"SwiGLU with gate bias does not absorb: {miss:.1e}")
    found = absorb(residual)
    require((found.absorbed, found.reason) == (None, "biases"), f"absorb does not name the gate bias: {found}")
    yield Control("no gate bias", "a SwiGLU block with gate bias absorbs its skip at width 2d", f"relative difference {miss:.1e}")

    eye = torch.eye(3, dtype=torch.float64)
    rows = torch.cat([eye, -eye])
    identity = GatedMLP(rows, rows, torch.cat([eye, -eye], 1), STEP)
    require(torch.equal(identity(x), x), "a step-gated block does not make x")
    yield Control("continuity at 0", "with a step gate 2d units make x", "difference 0")

    block = random_gated_mlp(3, 5, generator=generator)
    nothing = Residual(block, torch.zeros(3, 3, dtype=torch.float64))
    require(torch.equal(nothing(x), block(x)) and absorb(nothing).absorbed is True, "a zero skip was not absorbed")
    yield Control("M ≠ 0", "the zero skip is absorbed by the block itself", "difference 0")


class _Minus(torch.nn.Module):
    """x ↦ f(x) − x."""

    def __init__(self, f: torch.nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        return self.f(x) - x


CLAIM = Claim(
    id="A-P6",
    title="A gated block with a continuous gate, zero at 0, never absorbs a skip",
    source="[A], Proposition 6, there for a differentiable gate",
    hypotheses=("g(0) = 0", "g continuous at 0", "no gate bias", "M ≠ 0", "any widths"),
    uses=(),
    chapter="skip/gated",
    evidence=evidence,
    controls=controls,
)
