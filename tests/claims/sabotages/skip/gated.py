"""False worlds for A-P6."""

import torch
from false_worlds import sabotage

from samefn.activations import get
from samefn.networks import GatedMLP, Residual
from samefn.skip.gated import SIGNED_SQRT, quadratic_constant, slope_at_zero


@sabotage(
    "A-P6",
    "SiLU is not zero at zero",
    "taylor_coefficients",
    "derivatives_at_zero",
    "fits_are_off_near_zero",
    "rates_at_zero",
    "even_powers",
)
def silu_starts_above_zero(world):
    silu = get("silu")
    shifted = lambda z: silu.expression(z) + 1
    world.activation("silu", function=lambda z: silu(z) + 1, expression=shifted)


@sabotage("A-P6", "ReLU as a gate jumps at 0", "quadratic_growth", "rates_at_zero")
def relu_jumps(world):
    world.activation("relu", function=lambda z: torch.relu(z) + (z > 0))


@sabotage("A-P6", "a skip is never added", "derivatives_at_zero", "fits_are_off_near_zero")
def the_skip_is_lost(world):
    world.method(Residual, "forward", lambda self, x: self.block(x))


@sabotage("A-P6", "the gates are not multiplied by the values", "derivatives_at_zero", "rates_at_zero")
def no_values(world):
    forward = lambda self, x: self.activation(x @ self.gate.T) @ self.down.T
    world.method(GatedMLP, "forward", forward)


@sabotage("A-P6", "κ is half of what it is", "quadratic_growth")
def half_of_kappa(world):
    world.wrap(quadratic_constant, lambda kappa: kappa / 2)


@sabotage("A-P6", "κ has the shortest gate in place of the longest", "quadratic_growth")
def shortest_gate(world):
    norm = lambda w: float(torch.linalg.matrix_norm(w, 2))
    kappa = lambda block: norm(block.down) * norm(block.up) * float(block.gate.norm(dim=1).min())
    world.replace(quadratic_constant, kappa)


@sabotage("A-P6", "slopes are off by 3 %", "rates_at_zero")
def steeper_slopes(world):
    world.wrap(slope_at_zero, lambda slope: 1.03 * slope)


@sabotage("A-P6", "the signed root is the identity", "vertical_gates", "rates_at_zero")
def no_vertical_gate(world):
    world.replace(SIGNED_SQRT, get("identity"))


@sabotage("A-P6", "SiLU and GELU are of degree 1, as ReLU is", "nearer_with_width", "even_powers")
def gates_of_degree_one(world):
    relu = get("relu")
    for name in ("silu", "gelu"):
        world.activation(name, function=relu.function, expression=relu.expression)


@sabotage("A-P6", "wide ReGLU blocks come as near to x as SwiGLU blocks", "nearer_with_width")
def no_floor_of_degree_two(world):
    world.activation("relu", function=get("silu").function)
