"""False worlds for B-D1."""

import sympy
import torch
from false_worlds import sabotage

from samefn.equivariance import finite
from samefn.equivariance.alignment import Symmetry
from samefn.equivariance.attention import MultiHeadAttention
from samefn.equivariance.model import attention_symmetry


@sabotage("B-D1", "the next layer is moved by k, not by its inverse", "finite_models")
def no_inverse(world):
    def act(k, theta):
        moved = [*(finite.compose(k_i, f) for k_i, f in zip(k, theta)), theta[-1]]
        return (moved[0], *(finite.compose(f, k_i) for k_i, f in zip(k, moved[1:])))

    world.replace(finite.act, act)


@sabotage("B-D1", "outgoing weights are multiplied by the factors", "relu_units", "cubic_units")
def factors_twice(world):
    act = Symmetry.act

    def twice(symmetry, layers):
        moved = act(symmetry, layers)
        for i, factors in enumerate(symmetry.factors):
            moved = moved.replaced(i + 1, moved.weights[i + 1] * factors**2)
        return moved

    world.method(Symmetry, "act", twice)


@sabotage("B-D1", "the next layer does not hear of the new order", "gelu_units", "tanh_units", "relu_units")
def order_forgotten(world):
    act = Symmetry.act

    def forgetful(symmetry, layers):
        moved = act(symmetry, layers)
        for i, order in enumerate(symmetry.permutations):
            moved = moved.replaced(i + 1, moved.weights[i + 1].roll(1, dims=1)[:, order.argsort()])
        return moved

    world.method(Symmetry, "act", forgetful)


@sabotage("B-D1", "GELU units admit a sign", "gelu_units")
def gelu_is_odd(world):
    world.activation("gelu", symmetry="sign")


@sabotage("B-D1", "ReLU units admit every nonzero factor", "relu_units")
def relu_is_odd(world):
    world.activation("relu", symmetry="nonzero scaling")


@sabotage(
    "B-D1", "tanh is ReLU: any positive factor passes, no sign", "tanh_units", "signed_permutations_only"
)
def tanh_is_relu(world):
    world.activation("tanh", function=torch.relu)


@sabotage("B-D1", "tanh is linear: every row passes", "signed_permutations_only")
def tanh_is_linear(world):
    world.activation("tanh", function=lambda z: z)


@sabotage("B-D1", "sigmoid is arctan + ½, relu6 ends at 5", "sigmoid_reflection", "relu6_reflection")
def other_limits(world):
    world.activation("sigmoid", function=lambda z: torch.atan(z) + 0.4, expression=lambda z: sympy.atan(z))
    world.activation("relu6", function=lambda z: z.clamp(0, 5))


@sabotage("B-D1", "keys are off by 3 %", "attention_heads")
def keys_off(world):
    def off(moved):
        attention, k = moved
        weights = attention.query, 1.03 * attention.key, attention.value, attention.output
        return MultiHeadAttention(*weights), k

    world.wrap(attention_symmetry, off)
