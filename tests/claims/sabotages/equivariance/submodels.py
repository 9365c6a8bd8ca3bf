"""False worlds for B-D3."""

from dataclasses import replace

import torch
from false_worlds import sabotage

from samefn.equivariance import finite
from samefn.equivariance.redundancy import Reduced, averaging, merge, reduce
from samefn.equivariance.submodels import MOVES, available_moves, insert_clone

PLANTED = "planted_tanh", "planted_relu", "planted_gelu"


@sabotage("B-D3", "layers are composed in the other order", "finite_squares")
def composed_backwards(world):
    def backwards(theta):
        result = theta[-1]
        for f in theta[-2::-1]:
            result = tuple(f[y % len(f)] for y in result)
        return result

    world.replace(finite.function, backwards)


@sabotage("B-D3", "β(θ̃) keeps the row that the clone once had", "lifted")
def old_row_of_the_clone(world):
    def stale(network, layer, into, column, *, scale=1.0, factor=1.0):
        lifted = insert_clone(network, layer, into, column, scale=scale, factor=factor)
        rows = lifted.layers.rows(layer - 1).clone()
        rows[-1] = 1
        return lifted.rebuilt(lifted.layers.replaced(layer - 1, rows[:, :-1], rows[:, -1]))

    world.replace(insert_clone, stale)


@sabotage("B-D3", "the columns of a unit and its clone add up to 3 % more", "lifted")
def columns_add_up_to_more(world):
    def added(network, layer, into, column, *, scale=1.0, factor=1.0):
        lifted = insert_clone(network, layer, into, column, scale=scale, factor=factor)
        weight = lifted.layers.weights[layer].clone()
        weight[:, into] *= 1.03
        return lifted.rebuilt(lifted.layers.replaced(layer, weight))

    world.replace(insert_clone, added)


@sabotage("B-D3", "outgoing weights are averaged, as values are", "any_order")
def outgoing_weights_averaged(world):
    world.monkeypatch.setitem(MOVES, "merge", lambda *args: merge(*args, share=0.5))


@sabotage("B-D3", "no move is found", "any_order")
def blind(world):
    world.wrap(available_moves, lambda moves: [])


@sabotage("B-D3", "α* averages without dividing by the clones' factors", "planted_tanh", "planted_relu")
def factors_forgotten(world):
    world.replace(averaging, lambda alpha: torch.where(alpha != 0, 1 / (alpha != 0).sum(0), 0.0).T)


@sabotage("B-D3", "in θ' the first of several clones has all outgoing weights, not its share", *PLANTED)
def first_clone_takes_all(world):
    embed = Reduced.embed

    def lopsided(self):
        layers = embed(self).layers
        for i, alpha in enumerate(self.include):
            first = alpha * ((alpha != 0).cumsum(0) == 1)
            layers = layers.replaced(i + 1, layers.weights[i + 1] @ alpha @ averaging(first))
        return self.network.rebuilt(layers)

    world.method(Reduced, "embed", lopsided)


@sabotage("B-D3", "the reduced network has lost its output bias", *PLANTED)
def output_bias_lost(world):
    def lose(found):
        layers = found.network.layers
        last = len(layers.weights) - 1
        bias = torch.zeros_like(layers.biases[last])
        return replace(
            found, network=found.network.rebuilt(layers.replaced(last, layers.weights[last], bias))
        )

    world.wrap(reduce, lose)


@sabotage("B-D3", "reduce removes nothing", *PLANTED, "nothing_left", "smallest")
def nothing_removed(world):
    def lazy(network):
        eyes = tuple(torch.eye(n, dtype=torch.float64) for n in network.widths)
        return Reduced(network, eyes, eyes, ())

    world.replace(reduce, lazy)


@sabotage("B-D3", "tanh is the identity, and two units are one", "smallest")
def linear_units(world):
    world.activation("tanh", function=lambda z: z / 2)
