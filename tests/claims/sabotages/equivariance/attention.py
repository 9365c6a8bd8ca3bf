"""False worlds for B-ATT."""

from dataclasses import replace

import sympy
import torch
from false_worlds import sabotage

from samefn.equivariance import planted_attention
from samefn.equivariance.attention import MultiHeadAttention, head_action


@sabotage("B-ATT", "heads are told apart by M_h alone, R_h is ignored", "scrambled_heads")
def values_ignored(world):
    def distance(f, other):
        scores, others = planted_attention.products(f)[0], planted_attention.products(other)[0]
        return float(torch.cdist(scores.flatten(1), others.flatten(1)).amin(1).max())

    world.replace(planted_attention.head_set_distance, distance)


@sabotage(
    "B-ATT",
    "attention without softmax, so that M_h and R_h share a factor",
    "small_layers_are_told_apart",
    "directions_that_change_nothing",
    "one_token_moves",
)
def linear_attention(world):
    def maps(self, x):
        return torch.einsum("...ti,hij,...sj->...hts", x, self.products()[0], x)

    world.method(MultiHeadAttention, "maps", maps)


@sabotage("B-ATT", "scores are not divided by the root of d_k", "one_token_moves")
def scores_of_another_size(world):
    maps = MultiHeadAttention.maps

    def steeper(self, x):
        weights = maps(self, x) ** self.query.shape[1] ** 0.5
        return weights / weights.sum(-1, keepdim=True)

    world.method(MultiHeadAttention, "maps", steeper)


@sabotage("B-ATT", "head h goes where it comes from: π is inverted", "planted_permutations")
def inverted(world):
    world.wrap(head_action, lambda found: replace(found, permutations=found.permutations.argsort(1)))


@sabotage("B-ATT", "no head ever moves", "planted_permutations", "averaged_head")
def nothing_moves(world):
    world.wrap(head_action, lambda found: replace(found, permutations=found.permutations.sort(1).values))


@sabotage("B-ATT", "M_h is moved like a linear map and not like a form", "planted_permutations")
def moved_like_a_map(world):
    def moved(scores, values, g):
        inverse = torch.linalg.inv(g)
        return g @ scores @ inverse, g @ values @ inverse

    world.replace(planted_attention.moved_products, moved)


@sabotage("B-ATT", "the average forgets to move the outputs", "averaged_head")
def outputs_stay(world):
    orbit = planted_attention.orbit

    def forgetful(attention, rho):
        layer = orbit(attention, rho)
        output = attention.output.detach().repeat(len(rho.group), 1, 1)
        return MultiHeadAttention(layer.query, layer.key, layer.value, output)

    world.replace(orbit, forgetful)


@sabotage("B-ATT", "a sigmoid twice as steep", "shifted_sigmoids")
def steep_sigmoid(world):
    world.activation("sigmoid", expression=lambda z: 1 / (1 + sympy.exp(-2 * z)))
