"""False worlds for B-EXP."""

import math

import torch
from false_worlds import sabotage

from samefn.equivariance import approximate
from samefn.equivariance.layerwise import least_squares_action


def bounded_by(world, terms):
    """The telescope with other terms: ``terms`` has the layers' norms and misfits, and returns the bound."""

    def telescope(network, fitted, x):
        norms = [float(torch.linalg.matrix_norm(w, 2)) for w in network.weights]
        y, misses = x, []
        for i in range(1, len(fitted)):
            after = network.layer(i, y)
            misses.append((network.layer(i, y @ fitted[i - 1].T) - after @ fitted[i].T).norm(dim=1))
            y = after
        return (network(x @ fitted[0].T) - y @ fitted[-1].T).norm(dim=1), terms(norms, misses)

    world.replace(approximate.telescope, telescope)


@sabotage("B-EXP", "only the last layer's misfit counts", "errors_add_up", "bound_is_tight")
def last_layer_only(world):
    bounded_by(world, lambda norms, misses: misses[-1])


@sabotage("B-EXP", "errors are not stretched on their way out", "bound_is_tight")
def no_lipschitz_constants(world):
    bounded_by(world, lambda norms, misses: sum(misses))


@sabotage("B-EXP", "errors are stretched by the layers before them", "bound_is_tight")
def layers_before(world):
    bounded_by(world, lambda norms, misses: sum(math.prod(norms[:i]) * m for i, m in enumerate(misses)))


@sabotage("B-EXP", "the fitted matrix is transposed", "fit_is_no_worse_than_q")
def transposed_fit(world):
    world.wrap(least_squares_action, lambda a: a.T)


@sabotage("B-EXP", "every fit is the identity", "least_squares_finds_the_action", "fit_is_no_worse_than_q")
def identity_fit(world):
    world.wrap(least_squares_action, lambda a: torch.eye(len(a)))


@sabotage("B-EXP", "s is the largest singular value", "singular_value_bounds_the_weights")
def largest_singular_value(world):
    values = torch.linalg.svdvals
    world.method(torch.linalg, "svdvals", lambda matrix: values(matrix).flip(0))


@sabotage("B-EXP", "a layer's error is squared", "slope_one")
def squared(world):
    world.wrap(approximate.first_layer, lambda error: error**2)
