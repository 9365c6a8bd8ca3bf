"""False worlds for B-MLP."""

import math
from fractions import Fraction

import torch
from false_worlds import sabotage

from samefn.equivariance.identifiable import exact_tanh
from samefn.equivariance.layerwise import latent_actions
from samefn.equivariance.planted import as_sigmoid
from samefn.equivariance.redundancy import Reduced, reduce


def _matrices(change):
    """Let ``change`` have the matrices of each latent action; nothing asks whether the result is one."""

    def changed(found):
        for rho in found:
            object.__setattr__(rho, "matrices", change(rho.matrices))
        return found

    return changed


LATENT = "planted_actions", "spare_units", "reflected_units"


@sabotage("B-MLP", "the latent action is k, not its inverse", *LATENT)
def no_inverse(world):
    world.wrap(latent_actions, _matrices(torch.linalg.inv))


@sabotage("B-MLP", "units are permuted, never negated", *LATENT)
def signs_are_lost(world):
    world.wrap(latent_actions, _matrices(torch.abs))


@sabotage("B-MLP", "latent matrices are 3 % too large", *LATENT)
def too_large(world):
    world.wrap(latent_actions, _matrices(lambda m: 1.03 * m))


@sabotage("B-MLP", "embed returns the zero network", "spare_units")
def zero_network(world):
    right = Reduced.embed

    def zero(self):
        layers = right(self).layers
        last = len(layers.weights) - 1
        return self.network.rebuilt(layers.replaced(last, 0 * layers.weights[last], 0 * layers.biases[last]))

    world.method(Reduced, "embed", zero)


@sabotage("B-MLP", "the layers of θ itself are equivariant, with spare units and all", "spare_units")
def theta_itself(world):
    def lazy(network, **options):
        found = reduce(network, **options)
        object.__setattr__(found, "embed", lambda: network)
        return found

    world.replace(reduce, lazy)


@sabotage("B-MLP", "units are linear, for which only-if is false", "all_small_tanh_networks")
def linear_tanh(world):
    world.replace(exact_tanh, lambda slope, scale, y: Fraction(math.log2(scale * y**slope)))


@sabotage("B-MLP", "units are even, and signs cannot be told", "all_small_tanh_networks")
def even_units(world):
    world.replace(exact_tanh, lambda slope, scale, y: exact_tanh(slope, scale, y) ** 2)


@sabotage("B-MLP", "ReLU is |z|, which signed permutations pass, too", "matrices_through_relu")
def absolute_value(world):
    world.activation("relu", function=abs)


@sabotage("B-MLP", "ReLU is the identity, and all matrices pass", "matrices_through_relu")
def linear_units(world):
    world.activation("relu", function=lambda z: z)


@sabotage(
    "B-MLP",
    "softplus(30z)/30 in place of ReLU, through which factors do not pass",
    "every_monomial_matrix_occurs",
)
def smooth_corner(world):
    world.activation("relu", function=lambda z: torch.nn.functional.softplus(z, beta=30))


@sabotage("B-MLP", "sigmoid(−z) is −sigmoid(z): the next bias is not adjusted", "reflected_units")
def biases_stay(world):
    def careless(network):
        right = as_sigmoid(network)
        scales = [2.0] * len(network.widths) + [1.0]
        biases = [scale * b for scale, b in zip(scales, network.layers.biases, strict=True)]
        layers = right.layers
        for i, bias in enumerate(biases):
            layers = layers.replaced(i, layers.weights[i], bias)
        return right.rebuilt(layers)

    world.replace(as_sigmoid, careless)
