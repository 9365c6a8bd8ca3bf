"""A-P6: a gated block with a gate continuous and zero at 0 never absorbs a skip.  Chapter ``skip/gated``."""

from __future__ import annotations

import sympy
import torch

from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import GatedMLP, Residual, random_gated_mlp
from ...skip.gated import (
    SIGNED_SQRT,
    STEP,
    biased_pair,
    jacobian_at_zero,
    nearest_to_the_skip,
    quadratic_constant,
    slope_at_zero,
)
from .. import Claim, require

claim = Claim(
    id="A-P6",
    title="No gated block absorbs a nonzero linear skip if its gate is continuous and zero at 0",
    source="[A], Proposition 6, there for a differentiable gate",
    hypotheses=("g(0) = 0", "g continuous at 0", "no bias on gate or value", "M ≠ 0"),
    uses=(),
    chapter="skip/gated",
)


@claim.exact("a unit along tx has no term below t²")
def taylor_coefficients() -> str:
    t, p, q = sympy.symbols("t p q", real=True)
    for name in ("silu", "gelu"):
        unit = get(name).expression(t * p) * t * q  # one unit along the ray tx, with p = w·x and q = u·x
        terms = (sympy.diff(unit, t, j).subs(t, 0) / sympy.factorial(j) for j in range(3))
        found = [sympy.simplify(term) for term in terms]
        require(found == [0, 0, p * q / 2], f"the Taylor coefficients of a {name} unit are {found}")
    relu, s = get("relu").expression, sympy.Symbol("s", positive=True)
    defect = relu(s * p) * s * q - s**2 * relu(p) * q
    defect = sympy.simplify(defect.subs(sympy.Abs(s * p), s * sympy.Abs(p)))
    require(defect == 0, f"a ReGLU unit is not of degree 2: {defect}")
    return "½ t² (w·x)(u·x) for SiLU and GELU; t² ReLU(w·x)(u·x)"


@claim.exact("a gate that is continuous at 0 and vertical there makes a flat unit, too")
def vertical_gates() -> str:
    z = sympy.Symbol("z", positive=True)
    for name, g in {"signed √": SIGNED_SQRT.expression, "log": lambda z: 1 / (1 - sympy.log(z))}.items():
        slope, unit = (sympy.limit(f, z, 0, "+") for f in (g(z) / z, g(z)))  # a unit is g(z)z, beside z
        require(slope == sympy.oo, f"{name}: the gate has the slope {slope} at 0")
        require(unit == 0, f"{name}: the unit divided by z tends to {unit}")
    return "for g = √z and 1/(1 + |log z|): g(z)/z → ∞, unit/z → 0"


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
    return "difference 0"


@claim.numeric("‖G(x)‖ ≤ κ‖x‖², attained by bilinear blocks with orthogonal weights")
def quadratic_growth(draw: Draw) -> str:
    largest, scales = {}, torch.logspace(-4, 4, 200)[:, None]
    for name in ("silu", "gelu", "relu", "identity"):
        block, x = random_gated_mlp(3, 6, name, generator=draw), scales * draw.normal(200, 3)
        quotient = block(x).norm(dim=1) / (quadratic_constant(block) * x.norm(dim=1) ** 2)
        largest[name] = float(quotient.max())
        require(largest[name] < 1 + 1e-12, f"{name}: ‖G(x)‖ exceeds κ‖x‖², quotient {largest[name]}")
    rows, columns = (torch.linalg.qr(draw.normal(3, 3)).Q for _ in range(2))
    sizes, p, q = 0.1 + draw.uniform(3), *(0.1 + draw.uniform(2)).tolist()
    block = GatedMLP(sizes[:, None] * rows, p * rows, q * columns, "identity")
    attained = float(block(rows).norm(dim=1).max()) / quadratic_constant(block)
    require(abs(attained - 1) < 1e-12, f"an orthogonal bilinear block attains {attained} of κ")
    return ", ".join(f"{name} {q:.2f}" for name, q in largest.items()) + f"; attained {attained:.6f}"


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


@claim.numeric(
    "random blocks, along w₁: ‖G(x)‖ falls like ‖x‖² for SiLU, GELU, ReLU, and like ‖x‖^1.5 for sign(z)√|z|"
)
def rates_at_zero(draw: Draw) -> str:
    slopes, radii = [], torch.logspace(-8, -5, 7)
    for gate, expected in (("silu", 2), ("gelu", 2), ("relu", 2), (SIGNED_SQRT, 1.5)):
        block = random_gated_mlp(4, 9, gate, generator=draw)
        slope = slope_at_zero(block, block.gate[0], radii)  # a direction in which some gate is open
        require(abs(slope - expected) < 1e-3, f"{get(gate).name}: slope {slope}, expected {expected}")
        slopes.append(f"{get(gate).name} {slope:.4f}")
    return ", ".join(slopes)


@claim.exact("no floor, SiLU and GELU: Taylor coefficients of z², z⁴, …, z¹² are not 0")
def even_powers() -> str:
    z = sympy.Symbol("z", real=True)
    for name in ("silu", "gelu"):
        series = sympy.series(get(name).even_part(z).rewrite(sympy.exp), z, 0, 14).removeO()
        found = [series.coeff(z, 2 * j) for j in range(1, 7)]
        require(all(found), f"{name}: the even coefficients are {found}")
        require(series.coeff(z, 0) == 0, f"{name}: the constant term is {series.coeff(z, 0)}")
    return "6 of 6 for both"


@claim.numeric(
    "no floor: fits to x on [−1, 1] by 4, 8, 16 SwiGLU or GeGLU units get nearer, by ReGLU units do not"
)
def nearer_with_width() -> str:
    x, floor, found = torch.linspace(-1, 1, 20001)[:, None], (2**0.5 - 1) / 2, []
    for name in ("silu", "gelu", "relu"):
        blocks = [nearest_to_the_skip(name, m) for m in (4, 8, 16)]
        errors = [float((block(x) - x).abs().max()) for block in blocks]
        # ReGLU has degree 2 and that floor; the others go below it with 4 units, below a tenth with 8
        falls = floor / 2 > errors[0] > errors[1] > errors[2] and errors[1] < floor / 10
        right = min(errors) >= floor if name == "relu" else falls
        require(right, f"{name}: off by at most {errors} with 4, 8, 16 units, floor of degree 2 {floor}")
        found.append(f"{name} " + ", ".join(f"{error:.3f}" for error in errors))
    return "; ".join(found)


@claim.control("g(0) = 0", "a sigmoid-gated block equals x to first order")
def sigmoid_to_first_order(draw: Draw) -> str:
    up = torch.linalg.qr(draw.normal(3, 3)).Q
    block = GatedMLP(draw.normal(3, 3), up, 2 * up.T, "sigmoid")
    miss = float((jacobian_at_zero(block) - torch.eye(3)).abs().max())
    require(miss < 1e-14, f"the sigmoid block's derivative at 0 is not I: {miss:.1e}")
    slope = slope_at_zero(lambda x: block(x) - x, draw.normal(3), torch.logspace(-4, -2, 5))
    require(abs(slope - 2) < 0.05, f"the sigmoid block leaves x with slope {slope}")
    return f"derivative I, rest of slope {slope:.3f}"


@claim.control("g(0) = 0", "sigmoid-gated blocks with P_S = −I absorb: turn gate and value of the units of S")
def planted_sigmoid(draw: Draw) -> str:
    block, units = random_gated_mlp(3, 7, "sigmoid", generator=draw), [1, 4, 6]
    down, sign = block.down.clone(), torch.ones(7, 1)
    down[:, units] = -torch.linalg.inv(block.up[units])
    sign[units] = -1
    turned = GatedMLP(sign * block.gate, sign * block.up, down, "sigmoid")
    residual = Residual(GatedMLP(block.gate, block.up, down, "sigmoid"))
    miss = gap(residual, turned, draw.normal(300, 3))
    require(miss < 1e-9, f"the turned sigmoid block differs by {miss:.1e}")
    return f"relative difference {miss:.1e}"


@claim.control("no bias on gate or value", "a SwiGLU block with gate bias absorbs its skip at width 2d")
def gate_bias(draw: Draw) -> str:
    residual, turned = biased_pair(draw.normal(3, 3), 0.5 + draw.uniform(3))
    miss = gap(residual, turned, draw.normal(300, 3))
    same_width = residual.block.width == turned.width
    require(same_width and miss < 1e-12, f"SwiGLU with gate bias does not absorb: {miss:.1e}")
    return f"relative difference {miss:.1e}"


@claim.control("no bias on gate or value", "a SwiGLU block with value bias absorbs its skip at width d")
def value_bias(draw: Draw) -> str:
    W, x, silu = torch.linalg.qr(draw.normal(3, 3)).Q, draw.normal(300, 3), get("silu")
    value = x @ torch.zeros(3, 3) + 1  # u·x + 1 with u = 0
    block, turned = (lambda x, gate=gate: (silu(x @ gate.T) * value) @ -W for gate in (W, -W))
    miss = gap(lambda x: x + block(x), turned, x)
    require(miss < 1e-12, f"SwiGLU with value bias does not absorb: {miss:.1e}")
    return f"relative difference {miss:.1e}"


@claim.control("g continuous at 0", "step gates: a block of width d absorbs, and 2d units make x")
def step_gate(draw: Draw) -> str:
    eye, x = torch.eye(3), draw.normal(300, 3)
    rows = torch.cat([eye, -eye])
    identity = GatedMLP(rows, rows, torch.cat([eye, -eye], 1), STEP)
    require(torch.equal(identity(x), x), "a step-gated block does not make x")
    residual, turned = Residual(GatedMLP(eye, eye, -eye, STEP)), GatedMLP(-eye, -eye, -eye, STEP)
    require(torch.equal(residual(x), turned(x)), "the step-gated block does not absorb")
    return "difference 0"


@claim.control("M ≠ 0", "the zero skip is absorbed by the block itself")
def zero_skip(draw: Draw) -> str:
    block, x = random_gated_mlp(3, 5, generator=draw), draw.normal(300, 3)
    nothing = Residual(block, torch.zeros(3, 3))
    require(torch.equal(nothing(x), block(x)), "a zero skip was not absorbed")
    return "difference 0"
