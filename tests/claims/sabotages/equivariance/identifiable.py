"""False worlds for B-D2."""

from fractions import Fraction

import sympy
import torch
from false_worlds import sabotage

from samefn.equivariance.identifiable import exact_tanh, read_units, turned, vanishing_sets
from samefn.networks import DeepMLP


def square(z):
    """Its even parts are dependent: two units do what two other ones do."""
    return z / 2 + z**2


@sabotage("B-D2", "GELU is z/2 + z²", "all_small_gelu_networks", "poles_and_gaussians")
def gelu_is_a_square(world):
    world.activation("gelu", function=square, expression=square)


@sabotage("B-D2", "ReLU is z/2 + z²", "all_small_relu_networks")
def relu_is_a_square(world):
    world.activation("relu", function=square, expression=square)


@sabotage("B-D2", "ReLU and GELU are odd", "all_small_relu_networks", "all_small_gelu_networks")
def signs_go_to_the_outgoing_weights(world):
    world.activation("relu", function=torch.tanh)
    world.activation("gelu", function=torch.tanh)


@sabotage(
    "B-D2", "tanh is eᶻ: a bias is a factor", "different_units_are_independent", "all_small_tanh_networks"
)
def tanh_is_exponential(world):
    world.replace(exact_tanh, lambda slope, scale, y: scale * Fraction(y) ** slope)


@sabotage("B-D2", "tanh is arctan, which has no poles", "read_off_values", "poles_and_gaussians")
def tanh_is_arctan(world):
    world.activation("tanh", function=torch.atan, expression=sympy.atan)


@sabotage("B-D2", "slopes are off by 3 %", "read_off_values")
def slopes_off(world):
    world.wrap(read_units, lambda found: found * [1.03, 1, 1])


@sabotage("B-D2", "the residue is taken for the outgoing weight", "read_off_values")
def residues(world):
    world.wrap(read_units, lambda found: found / [[1, 1, slope] for slope in found[:, 0]])


@sabotage("B-D2", "turning does not pay Σ a_i b_i to the output bias", "relu_turns", "gelu_turns")
def output_bias_forgotten(world):
    def unpaid(network, units):
        layers = turned(network, units).layers
        return DeepMLP(layers.weights, [layers.biases[0], network.layers.biases[1]], layers.activations)

    world.replace(turned, unpaid)


@sabotage("B-D2", "a set of units counts if its matrices have trace 0", "relu_turns", "gelu_turns")
def trace_only(world):
    def by_trace(network, tolerance=1e-9):
        down, up = network.layers.weights[1], network.layers.weights[0]
        diagonal = DeepMLP([torch.ones(len(up), 1), (down * up.T).sum(0)[None]])
        return vanishing_sets(diagonal, tolerance)

    world.replace(vanishing_sets, by_trace)
