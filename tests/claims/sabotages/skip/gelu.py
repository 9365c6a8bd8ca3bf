"""False worlds for A-T10."""

from dataclasses import replace

import sympy
import torch
from false_worlds import sabotage

from samefn.networks import MLP, Residual
from samefn.skip.absorption import absorb, flip


@sabotage(
    "A-T10",
    "GELU is z/2 + z², for which only-if is false",
    "taylor_coefficients",
    "regular_moment_systems",
    "no_other_block_on_the_line",
)
def even_part_is_a_polynomial(world):
    def sigma(z):
        return z / 2 + z**2

    world.activation("gelu", function=sigma, expression=sigma)


@sabotage("A-T10", "the slope of GELU's odd part is 3 % off", "odd_part", "planted_sets_turned")
def slope_is_off(world):
    world.activation(
        "gelu",
        function=lambda z: z * (1.03 + torch.erf(z / 2**0.5)) / 2,
        expression=lambda z: z * (sympy.Rational(103, 100) + sympy.erf(z / sympy.sqrt(2))) / 2,
    )


@sabotage("A-T10", "GELU is z·erf(z/√2)/2 alone, without the half line", "odd_part", "planted_sets_turned")
def half_line_is_dropped(world):
    world.activation(
        "gelu",
        function=lambda z: z * torch.erf(z / 2**0.5) / 2,
        expression=lambda z: z * sympy.erf(z / sympy.sqrt(2)) / 2,
    )


@sabotage("A-T10", "GELU is z·Φ(2z): the argument of erf is off by a factor", "taylor_coefficients")
def scale_is_off(world):
    world.activation("gelu", expression=lambda z: z * (1 + sympy.erf(sympy.sqrt(2) * z)) / 2)


@sabotage("A-T10", "the criterion is 2 P_S = −I, for the library and its oracle", "planted_sets_turned")
def constant_is_doubled(world):
    world.activation("gelu", odd_slope=1.0)


@sabotage("A-T10", "a unit turned also changes the length of its row", "planted_sets_turned")
def length_is_not_kept(world):
    def other(block, units):
        turned, units = flip(block, units), list(units)
        up, down = turned.up.detach().clone(), turned.down.detach().clone()
        up[units], down[:, units] = 2 * up[units], down[:, units] / 2  # allowed for ReLU only
        return MLP(up, down, block.activation)

    world.replace(flip, other)


@sabotage("A-T10", "collinear rows are a spare unit, as for ReLU", "agrees_with_all_subsets")
def collinear_rows_are_spare(world):
    world.replace(absorb, lambda residual: absorb(Residual(MLP(residual.block.up, residual.block.down))))


@sabotage("A-T10", "nothing is ever absorbed", "agrees_with_all_subsets", "planted_sets_turned")
def absorb_always_refuses(world):
    world.wrap(absorb, lambda found: replace(found, absorbed=False, flipped=None, network=None))


@sabotage("A-T10", "margins are 30 % too large", "random_block_refuted")
def margins_are_inflated(world):
    world.wrap(absorb, lambda found: replace(found, margin=1.3 * found.margin))


@sabotage("A-T10", "the certificate is handed out transposed", "random_block_refuted")
def certificate_is_transposed(world):
    world.wrap(absorb, lambda found: replace(found, certificate=found.certificate.T))
