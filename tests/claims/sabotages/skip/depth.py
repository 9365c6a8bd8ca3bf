"""False worlds for A-C7."""

import torch
from false_worlds import sabotage

from samefn.activations import get
from samefn.networks import Residual
from samefn.skip import depth
from samefn.skip.depth import (
    INVERSE_ROOT,
    KINDS,
    SLOW_KINDS,
    Kind,
    growth_constant,
    products_of_skips,
    remainders_at_infinity,
    remainders_at_zero,
    spectral_norm,
    without_flat_blocks,
)


@sabotage("A-C7", "SiLU is not zero at zero", "two_blocks_on_the_line", "growth", "relu_among_flat")
def silu_starts_above_zero(world):
    silu = get("silu")
    other = lambda z: silu.expression(z) + 1
    world.activation("silu", function=lambda z: silu(z) + 1, expression=other)
    for name, kind in KINDS.items():
        if kind.activation is silu:
            world.monkeypatch.setitem(KINDS, name, Kind(get("silu"), 2, gated=True))


@sabotage("A-C7", "gated blocks of degree 1/2 are slow", "growth")
def gates_of_negative_degree(world):
    world.monkeypatch.setitem(KINDS, "inverse root", Kind(INVERSE_ROOT, 0.5, gated=True))
    world.replace(SLOW_KINDS, (*SLOW_KINDS, "inverse root"))


@sabotage("A-C7", "the constant of growth is half of what it is", "growth", "remainders_of_all_sizes")
def half_of_the_growth(world):
    world.wrap(growth_constant, lambda found: (found[0] / 2, found[1]))


def _infinity(grown):
    """remainders_at_infinity with other terms in place of max(1, ‖Λ‖^k) + ρ^k."""

    def remainders(stack):
        growth = [growth_constant(depth.inner_block(block)) for block in stack.blocks]
        k, rhos = max(degree for _, degree in growth), [0.0]
        for block, (kappa, _), product in zip(stack.blocks, growth, products_of_skips(stack)):
            more = kappa * grown(spectral_norm(product) ** k, rhos[-1] ** k)
            rhos.append(spectral_norm(depth.linear_part(block)) * rhos[-1] + more)
        return rhos[1:], k

    return remainders


@sabotage("A-C7", "far out, remainders grow by κ alone", "remainders_of_all_sizes")
def remainders_forget_their_input(world):
    world.replace(remainders_at_infinity, _infinity(lambda linear, rest: 1))


@sabotage("A-C7", "far out, remainders forget the remainder before", "remainders_of_all_sizes")
def remainders_forget_remainders(world):
    world.replace(remainders_at_infinity, _infinity(lambda linear, rest: max(1, linear)))


@sabotage("A-C7", "far out, remainders forget the constant", "remainders_of_all_sizes")
def remainders_forget_the_constant(world):
    world.replace(remainders_at_infinity, _infinity(lambda linear, rest: linear + rest))


@sabotage("A-C7", "near 0, the constants of two layers add up", "remainders_of_all_sizes")
def constants_add_up(world):
    def remainders(stack):
        growth = [growth_constant(depth.inner_block(block)) for block in stack.blocks]
        kappas, k = [kappa for kappa, _ in growth], min(degree for _, degree in growth)
        return [sum(kappas[: i + 1]) for i in range(len(kappas))], k, remainders_at_zero(stack)[2]

    world.replace(remainders_at_zero, remainders)


@sabotage(
    "A-C7",
    "a skip is never added",
    "rational_polynomials",
    "jacobians",
    "apart_near_zero",
    "linear_far_out",
    "slow_with_biases",
    "apart_far_out",
)
def the_skip_is_lost(world):
    world.method(Residual, "forward", lambda self, x: self.block(x))


@sabotage("A-C7", "skips multiply in the other order", "jacobians", "linear_far_out")
def other_order(world):
    def products(stack):
        found = [torch.eye(stack.dim_in)]
        for block in stack.blocks:
            found.append(found[-1] @ depth.linear_part(block))
        return found

    world.replace(products_of_skips, products)


@sabotage("A-C7", "ReLU is smooth at 0, as softplus is", "relu_among_flat")
def relu_is_not_homogeneous(world):
    world.activation("relu", function=get("softplus").function)


@sabotage("A-C7", "near 0 a ReLU layer is its skip alone", "relu_among_flat")
def only_skips_near_zero(world):
    world.wrap(without_flat_blocks, lambda stack: torch.nn.Identity())
