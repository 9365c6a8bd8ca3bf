"""False worlds for B-D4."""

import numpy as np
import torch
from false_worlds import sabotage

from samefn.equivariance import finite
from samefn.equivariance.adjunction import convolve, deep_sets, moved_encodings
from samefn.equivariance.finite_examples import composed_actions, moved_layers
from samefn.equivariance.layerwise import transport
from samefn.equivariance.model import attention_layers


@sabotage("B-D4", "g·W = Wρ(g), without the inverse", "perceptron_ends", "perceptron_action")
def no_inverse(world):
    world.replace(transport, lambda network, a, b: transport(network, torch.linalg.inv(a), b))


@sabotage("B-D4", "the output's bias is not moved", "perceptron_ends")
def output_bias_stays(world):
    def moved(network, a, b):
        layers = transport(network, a, b).layers
        return network.rebuilt(layers.replaced(2, layers.weights[2], network.layers.biases[2]))

    world.replace(transport, moved)


@sabotage("B-D4", "encodings are moved by g where g⁻¹ is needed", "attention_moves")
def encodings_move_the_other_way(world):
    world.replace(moved_encodings, lambda e, p, rho: p.mT @ e @ torch.linalg.inv(rho).mT)


@sabotage("B-D4", "tokens are permuted, but encodings stay at their places", "attention_moves")
def encodings_stay_in_place(world):
    world.replace(moved_encodings, lambda e, p, rho: e @ rho.mT)


@sabotage("B-D4", "a token sees only those before it", "attention_moves")
def causal(world):
    world.wrap(attention_layers, lambda layers: (layers[0], lambda y: layers[1](y).cumsum(-2)))


@sabotage("B-D4", "convolutions pad with zeros", "convolution_moves")
def zeros_around_the_image(world):
    world.replace(convolve, lambda y, kernel: torch.nn.functional.conv2d(y, kernel, padding=1))


@sabotage("B-D4", "the places of a convolution have weights of their own", "convolution_moves")
def weights_of_places(world):
    world.wrap(convolve, lambda y: y * torch.arange(1.0, 1 + y.shape[-1]))


@sabotage("B-D4", "the latent action is k itself, not its inverse, after g", "latent_action")
def latent_action_without_inverse(world):
    def composed(model, theta, actions):
        (found,) = composed_actions(model, theta, actions)
        moves = zip(found, actions[1], strict=True)  # ρ = k⁻¹g, so k = gρ⁻¹
        return [tuple(finite.compose(finite.compose(g, finite.inverse(rho)), g) for rho, g in moves)]

    world.replace(composed_actions, composed)


@sabotage("B-D4", "the latent action is g k⁻¹, in the other order", "latent_action")
def latent_action_in_the_other_order(world):
    def composed(model, theta, actions):
        (found,) = composed_actions(model, theta, actions)
        moves = zip(found, actions[1], strict=True)  # k⁻¹ = ρg⁻¹
        return [tuple(finite.compose(g, finite.compose(rho, finite.inverse(g))) for rho, g in moves)]

    world.replace(composed_actions, composed)


@sabotage("B-D4", "θ^g moves both ends only, though G acts on the hidden points too", "latent_action")
def strict_form_only(world):
    still = lambda rho: tuple(range(len(rho)))
    world.replace(
        moved_layers, lambda theta, moves: moved_layers(theta, (moves[0], still(moves[1]), moves[2]))
    )


@sabotage("B-D4", "in place of the mean of all, that of the neighbours on a path", "deep_sets_takes_its_own")
def neighbours_on_a_path(world):
    path = np.diag([1, 1], 1) + np.diag([1, 1], -1)  # bipartite: negating one side negates it
    world.replace(deep_sets, lambda own, mean, n: n * own * np.eye(n, dtype=int) + mean * path)
