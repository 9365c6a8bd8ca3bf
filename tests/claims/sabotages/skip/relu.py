"""False worlds for A-T8."""

from dataclasses import replace

import torch
from false_worlds import sabotage

from samefn.networks import MLP
from samefn.skip.absorption import Absorption, absorb, flip


@sabotage("A-T8", "turning a set of units leaves out the last of them", "planted_sets_found", "integer_block")
def one_unit_is_forgotten(world):
    world.replace(flip, lambda block, units: flip(block, list(units)[:-1]))


@sabotage("A-T8", "turning a unit negates its column, not its row", "planted_sets_found", "integer_block")
def columns_are_negated(world):
    def other(block, units):
        rows_negated = flip(block, units)
        return MLP(-rows_negated.up.detach(), -rows_negated.down.detach(), block.activation)

    world.replace(flip, other)


@sabotage("A-T8", "σ(z) = z/2 + z², for which only-if is false", "no_other_block_in_the_plane")
def even_part_is_a_polynomial(world):
    def sigma(z):
        return z / 2 + z**2

    world.activation("relu", function=sigma, expression=sigma)


@sabotage("A-T8", "ReLU has the slope 0.03 to the left", "odd_part", "integer_block", "planted_sets_found")
def relu_leaks(world):
    def sigma(z):
        return z - 0.97 * (z - abs(z)) / 2

    world.activation("relu", function=sigma, expression=sigma)


@sabotage("A-T8", "ReLU bends at 0 by 3 % too much", "odd_part", "no_other_block_in_the_plane")
def relu_has_another_slope(world):
    def sigma(z):
        return 1.03 * (z + abs(z)) / 2

    world.activation("relu", function=sigma, expression=sigma)


@sabotage("A-T8", "the criterion is 2 P_S = −I, for the library and its oracle", "planted_sets_found")
def constant_is_doubled(world):
    world.activation("relu", odd_slope=1.0)


@sabotage("A-T8", "the criterion is P_S = +I, for the library and its oracle", "planted_sets_found")
def sign_is_lost(world):
    world.activation("relu", odd_slope=-0.5)


@sabotage("A-T8", "a rounded least-squares solution counts, P_S is not checked", "agrees_with_all_subsets")
def rounding_is_not_checked(world):
    def other(residual):
        up, down = residual.block.up, residual.block.down
        gram = (down.T @ down) * (up @ up.T)
        chi = torch.linalg.lstsq(gram, -(down * up.T).sum(0)[:, None]).solution.flatten()
        flipped = tuple((chi > 0.5).nonzero().flatten().tolist())
        return Absorption(True, "submatrix", flipped, flip(residual.block, flipped))

    world.replace(absorb, other)


@sabotage("A-T8", "no set is ever found", "agrees_with_all_subsets", "planted_sets_found")
def absorb_always_refuses(world):
    world.wrap(absorb, lambda found: replace(found, absorbed=False, flipped=None, network=None))


@sabotage("A-T8", "the zero network is returned", "planted_sets_found")
def zero_network(world):
    def zero(found):
        if found.network is None:
            return found
        up, down = found.network.up.detach(), found.network.down.detach()
        return replace(found, network=MLP(up, 0 * down, found.network.activation))

    world.wrap(absorb, zero)


@sabotage("A-T8", "margins are 30 % too large", "random_blocks_refuted")
def margins_are_inflated(world):
    world.wrap(absorb, lambda found: replace(found, margin=1.3 * found.margin))
