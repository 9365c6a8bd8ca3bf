"""False worlds for A-P5."""

from dataclasses import replace

import torch
from false_worlds import sabotage

from samefn.activations import get, relu_power
from samefn.networks import MLP, Residual
from samefn.skip.homogeneous import best_on_ray, disc_fit, two_radii_bound


@sabotage("A-P5", "ReLU² is ReLU", "degrees", "two_points_on_a_ray", "all_small_blocks")
def squares_are_lost(world):
    world.activation("relu_squared", function=torch.relu, expression=get("relu").expression)


@sabotage("A-P5", "units see x + (1, …, 1)", "two_points_on_a_ray")
def hidden_units_have_biases(world):
    forward = MLP.forward
    world.method(MLP, "forward", lambda self, x: forward(self, x + 1))


@sabotage("A-P5", "powers of ReLU are 3 % too steep", "degrees", "floor_on_the_disc")
def powers_are_off(world):
    world.replace(relu_power, lambda degree: relu_power(1.03 * degree))


@sabotage("A-P5", "powers of ReLU have a linear part", "degrees", "floor_on_the_disc")
def a_unit_of_degree_one_more(world):
    def mixed(degree):
        power = relu_power(degree)
        return replace(
            power, function=lambda z: power.function(z) + z, expression=lambda z: power.expression(z) + z
        )

    world.replace(relu_power, mixed)


@sabotage("A-P5", "the two-radii bound is twice as large", "fits_respect_the_bound")
def bound_doubled(world):
    world.wrap(two_radii_bound, lambda bound: 2 * bound)


@sabotage("A-P5", "the two-radii bound is half as large", "fits_respect_the_bound")
def bound_halved(world):
    world.wrap(two_radii_bound, lambda bound: bound / 2)


@sabotage("A-P5", "the best multiple on a ray is 3 % off", "best_pair_of_radii")
def multiple_is_off(world):
    world.wrap(best_on_ray, lambda best: (1.03 * best[0], abs(1.03 * best[0] - 1)))


@sabotage("A-P5", "the floor is halved", "floor_on_the_disc")
def floor_halved(world):
    world.wrap(disc_fit, lambda found: (found[0], found[1] / 2))


@sabotage("A-P5", "wide blocks fit x as well as one likes", "floor_on_the_disc")
def fit_without_floor(world):
    world.wrap(disc_fit, lambda found: (found[0] / 10, found[1]))


@sabotage("A-P5", "the skip is applied twice", "two_points_on_a_ray")
def skip_twice(world):
    world.method(Residual, "forward", lambda self, x: 2 * x @ self.skip_matrix().T + self.block(x))
