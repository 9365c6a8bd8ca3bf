"""False worlds for B-HEADS."""

from dataclasses import replace

import sympy
import torch
from false_worlds import sabotage

from samefn.equivariance import planted_heads
from samefn.equivariance.attention import MultiHeadAttention
from samefn.equivariance.heads import PatchAttention


@sabotage("B-HEADS", "positions are not added", "only_the_visible", "directions_that_change_nothing")
def no_positions(world):
    world.method(PatchAttention, "features", lambda self, x: x @ self.embed.T)


@sabotage("B-HEADS", "attention without softmax", "only_the_visible", "sigmoids_along_one_token")
def no_softmax(world):
    def maps(self, x):
        return torch.einsum("...ti,hij,...sj->...hts", x, self.products()[0], x)

    world.method(MultiHeadAttention, "maps", maps)


@sabotage("B-HEADS", "no head ever moves", "action_from_the_pixels", "function_and_maps_move")
def nothing_moves(world):
    world.wrap(planted_heads.recover, lambda found: replace(found, partner=found.partner.sort().values))


@sabotage("B-HEADS", "positions are off by one percent", "action_from_the_pixels", "function_and_maps_move")
def positions_off(world):
    plant = planted_heads.plant

    def off(*args, **kwargs):
        known = plant(*args, **kwargs)
        layer, away = known.layer, torch.linspace(0.99, 1.01, len(known.layer.positions))[:, None]
        positions = away * layer.positions.detach()
        return replace(known, layer=PatchAttention(layer.embed, positions, layer.attention, layer.decode))

    world.replace(plant, off)


@sabotage("B-HEADS", "the sum of sigmoids is off by three percent", "sigmoids_along_one_token")
def sum_off(world):
    world.wrap(planted_heads.sum_of_sigmoids, lambda values: 1.03 * values)


@sabotage("B-HEADS", "a sigmoid twice as steep", "poles_with_residues")
def steep_sigmoid(world):
    world.activation("sigmoid", expression=lambda z: 1 / (1 + sympy.exp(-2 * z)))
