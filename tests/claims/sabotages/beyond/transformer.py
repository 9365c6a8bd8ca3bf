"""False worlds for X-REAL."""

from dataclasses import replace
from inspect import unwrap

import torch
from false_worlds import sabotage

from samefn import activations, pretrained
from samefn.claims.beyond import transformer
from samefn.networks import MLP, Residual
from samefn.skip.absorption import absorb
from samefn.skip.planted import plant

BOUNDS = "every_layer_is_refuted", "refuted_between_layer_norms"


def recompute(world):
    """What is kept between checks is computed anew in the false world."""
    for kept in (transformer.answers, transformer.margins):
        world.replace(kept, unwrap(kept))


def with_layer(world, change):
    """Layer 3 becomes something else."""
    first = transformer.layers()
    recompute(world)
    world.replace(transformer.layers, lambda: (*first[:3], change(first[3]), *first[4:]))


@sabotage("X-REAL", "layer 3 absorbs its skip: a set was planted", *BOUNDS, "found_sets")
def one_layer_absorbs(world):
    with_layer(world, lambda residual: plant(residual.block, range(500)))


@sabotage(
    "X-REAL", "a unit of layer 3 is the opposite of another", "hypotheses", "hypotheses_between_layer_norms"
)
def opposite_units(world):
    def change(residual):
        up, bias = residual.block.up.clone(), residual.block.up_bias.clone()
        up[7], bias[7] = -up[2], -bias[2]
        return Residual(MLP(up, residual.block.down, "gelu", bias, residual.block.down_bias))

    with_layer(world, change)


@sabotage("X-REAL", "a unit of layer 3 writes the vector of ones", "hypotheses_between_layer_norms")
def a_constant_column(world):
    def change(residual):
        down = residual.block.down.clone()
        down[:, 5] = 1
        return Residual(
            MLP(residual.block.up, down, "gelu", residual.block.up_bias, residual.block.down_bias)
        )

    with_layer(world, change)


@sabotage("X-REAL", "a certificate proves 30 % more than it does", "found_sets")
def inflated_bound(world):
    recompute(world)
    world.wrap(transformer.margin, lambda bound: 1.3 * bound)


@sabotage("X-REAL", "every certificate is the identity, the trace test", *BOUNDS)
def only_the_trace_test(world):
    recompute(world)
    world.wrap(absorb, lambda answer: replace(answer, certificate=torch.eye(384)))


@sabotage("X-REAL", "random twins keep the trained pairing", "random_twins")
def twins_that_are_trained(world):
    world.replace(pretrained.random_twin, lambda residual, generator: residual)


@sabotage("X-REAL", "σ(z) = z/2 + z², whose units are dependent", "even_parts_are_independent")
def quadratic(world):
    world.activation("gelu", function=lambda z: z / 2 + z**2)
    assert activations.get("gelu")(torch.ones(())) == 1.5
