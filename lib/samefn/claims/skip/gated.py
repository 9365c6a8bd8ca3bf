"""A-P6: a gated block with a gate continuous and zero at 0 never absorbs a skip.  Chapter ``skip/gated``."""

from __future__ import annotations

import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import GatedMLP, Residual, random_gated_mlp
from ...skip.absorption import absorb
from ...skip.gated import (
    SIGNED_SQRT,
    STEP,
    biased_pair,
    jacobian_at_zero,
    quadratic_constant,
    slope_at_zero,
)
from .. import Claim, require

claim = Claim(
    id="A-P6",
    title="A gated block with a continuous gate, zero at 0, never absorbs a skip",
    source="[A], Proposition 6, there for a differentiable gate",
    hypotheses=("g(0) = 0", "g continuous at 0", "no gate bias", "M ≠ 0", "any widths"),
    uses=(),
    chapter="skip/gated",
)


@claim.exact("a unit along tx has no term below t²")
def taylor_coefficients() -> str:
    t, p, q = sympy.symbols("t p q", real=True)
    for name in ("silu", "gelu"):
        unit = get(name).expression(t * p) * t * q  # one unit along the ray tx, with p = w·x and q = u·x
        terms = (sympy.diff(unit, t, n).subs(t, 0) / sympy.factorial(n) for n in range(3))
        found = [sympy.simplify(term) for term in terms]
        require(found == [0, 0, p * q / 2], f"the Taylor coefficients of a {name} unit are {found}")
    relu, s = get("relu").expression, sympy.Symbol("s", positive=True)
    defect = relu(s * p) * s * q - s**2 * relu(p) * q
    defect = sympy.simplify(defect.subs(sympy.Abs(s * p), s * sympy.Abs(p)))
    require(defect == 0, f"a ReGLU unit is not of degree 2: {defect}")
    return "½ t² (w·x)(u·x) for SiLU and GELU; t² ReLU(w·x)(u·x)"


@claim.exact("gates that are continuous at 0 and not differentiable there exist")
def rough_gates() -> str:
    z = sympy.Symbol("z", positive=True)
    for name, g in {"signed √": sympy.sqrt(z), "1/(1 + |log z|)": 1 / (1 - sympy.log(z))}.items():
        require(sympy.limit(g, z, 0, "+") == 0, f"{name} is not continuous at 0")
        require(sympy.limit(g / z, z, 0, "+") == sympy.oo, f"{name} has a derivative at 0")
    return "limit of g is 0, of g(z)/z is ∞"


@claim.numeric("derivatives at 0 are M (of rank one) and 0, by automatic differentiation")
def derivatives_at_zero(draw: Draw) -> str:
    for name in ("silu", "gelu", "gelu_tanh", "mish"):
        skip = torch.outer(draw.normal(4), draw.normal(4))
        residual = Residual(random_gated_mlp(4, 9, name, generator=draw), skip)
        other = random_gated_mlp(4, 15, name, generator=draw)
        # exact zeros meet exact zeros in the chain rule, so no rounding occurs on either side
        exact = torch.equal(jacobian_at_zero(residual), skip)
        require(exact, f"{name}: the derivative at 0 of Mx + G is not M")
        require(not jacobian_at_zero(other).any(), f"{name}: the derivative at 0 of G' is not 0")
        found = absorb(residual)
        refused = (found.absorbed, found.reason) == (False, "linearisation")
        require(refused, f"absorb does not refuse {name}: {found}")
    return "difference 0"


@claim.numeric("‖G(x)‖ ≤ κ‖x‖², κ from the norms of the weights")
def quadratic_growth(draw: Draw) -> str:
    largest = {}
    for name in ("silu", "gelu", "relu"):
        block, x = random_gated_mlp(3, 6, name, generator=draw), draw.normal(200, 3)
        quotient = block(x).norm(dim=1) / (quadratic_constant(block) * x.norm(dim=1) ** 2)
        largest[name] = float(quotient.max())
        require(largest[name] < 1 + 1e-12, f"{name}: ‖G(x)‖ exceeds κ‖x‖², quotient {largest[name]}")
    return ", ".join(f"{name} at most {q:.2f} κ‖x‖²" for name, q in largest.items())


def _fitted(residual: Residual, draw: Draw) -> GatedMLP:
    """A residual-free block of 24 units, fitted to the residual block on 200 points by least squares."""
    activation, x = residual.block.activation, draw.normal(200, 3)
    gate, up = draw.normal(2, 24, 3)
    hidden = activation(x @ gate.T) * (x @ up.T)
    down = torch.linalg.lstsq(hidden, residual(x), driver="gelsd").solution.T
    return GatedMLP(gate, up, down, activation)


@claim.certificate("at ‖x‖ = 1/2κ, κ from the norms of the weights, a fitted block is off by at least ½‖x‖")
def fits_are_off_near_zero(draw: Draw) -> str:
    least = []
    for name in ("silu", "gelu", "relu"):
        residual = Residual(random_gated_mlp(3, 6, name, generator=draw))
        fitted = _fitted(residual, draw)
        kappa = quadratic_constant(residual.block) + quadratic_constant(fitted)
        y = torch.nn.functional.normalize(draw.normal(100, 3), dim=1) / (2 * kappa)
        ratio = float(((residual(y) - fitted(y)).norm(dim=1) / y.norm(dim=1)).min())
        require(ratio >= 0.5 * (1 - 1e-9), f"{name}: at radius 1/2κ the relative difference is {ratio}")
        least.append(f"{name}: radius {1 / (2 * kappa):.1e}, {ratio:.3f}")
    return "; ".join(least)


@claim.numeric("‖G(x)‖ falls like ‖x‖², and like ‖x‖^1.5 for the gate sign(z)√|z|")
def rates_at_zero(draw: Draw) -> str:
    slopes, radii = [], torch.logspace(-8, -5, 7)
    for gate, expected in (("silu", 2), ("gelu", 2), ("relu", 2), (SIGNED_SQRT, 1.5)):
        block = random_gated_mlp(4, 9, gate, generator=draw)
        slope = slope_at_zero(block, block.gate[0], radii)  # a direction in which some gate is open
        require(abs(slope - expected) < 1e-3, f"{get(gate).name}: slope {slope}, expected {expected}")
        slopes.append(f"{get(gate).name} {slope:.4f}")
    return ", ".join(slopes)


@claim.control("g(0) = 0", "a sigmoid-gated block equals x to first order")
def sigmoid_to_first_order(draw: Draw) -> str:
    up = torch.linalg.qr(draw.normal(3, 3)).Q
    block = GatedMLP(draw.normal(3, 3), up, 2 * up.T, "sigmoid")
    miss = float((jacobian_at_zero(block) - torch.eye(3)).abs().max())
    require(miss < 1e-14, f"the sigmoid block's derivative at 0 is not I: {miss:.1e}")
    slope = slope_at_zero(lambda x: block(x) - x, draw.normal(3), torch.logspace(-4, -2, 5))
    require(abs(slope - 2) < 0.05, f"the sigmoid block leaves x with slope {slope}")
    return f"derivative I, rest of slope {slope:.3f}"


@claim.control("g(0) = 0, exactly", "sigmoid-gated blocks with P_S = −I absorb")
def planted_sigmoid(draw: Draw) -> str:
    block, units = random_gated_mlp(3, 7, "sigmoid", generator=draw), [1, 4, 6]
    down = block.down.clone()
    down[:, units] = -torch.linalg.inv(block.up[units])
    residual = Residual(GatedMLP(block.gate, block.up, down, "sigmoid"))
    found = absorb(residual)
    absorbed = found.absorbed is True and found.flipped == tuple(units)
    require(absorbed, f"the planted sigmoid block did not absorb: {found}")
    miss = gap(residual, found.network, draw.normal(300, 3))
    require(miss < 1e-9, f"the flipped sigmoid block differs by {miss:.1e}")
    return f"relative difference {miss:.1e}"


@claim.control("no gate bias", "a SwiGLU block with gate bias absorbs its skip at width 2d")
def gate_bias(draw: Draw) -> str:
    residual, turned = biased_pair(draw.normal(3, 3), 0.5 + draw.uniform(3))
    miss = gap(residual, turned, draw.normal(300, 3))
    same_width = residual.block.width == turned.width
    require(same_width and miss < 1e-12, f"SwiGLU with gate bias does not absorb: {miss:.1e}")
    found = absorb(residual)
    named = (found.absorbed, found.reason) == (None, "biases")
    require(named, f"absorb does not name the gate bias: {found}")
    return f"relative difference {miss:.1e}"


@claim.control("continuity at 0", "with a step gate 2d units make x")
def step_gate(draw: Draw) -> str:
    eye, x = torch.eye(3), draw.normal(300, 3)
    rows = torch.cat([eye, -eye])
    identity = GatedMLP(rows, rows, torch.cat([eye, -eye], 1), STEP)
    require(torch.equal(identity(x), x), "a step-gated block does not make x")
    return "difference 0"


@claim.control("M ≠ 0", "the zero skip is absorbed by the block itself")
def zero_skip(draw: Draw) -> str:
    block, x = random_gated_mlp(3, 5, generator=draw), draw.normal(300, 3)
    nothing = Residual(block, torch.zeros(3, 3))
    absorbed = torch.equal(nothing(x), block(x)) and absorb(nothing).absorbed is True
    require(absorbed, "a zero skip was not absorbed")
    return "difference 0"
