"""False worlds for A-C11."""

from dataclasses import replace

import numpy as np
import torch
from false_worlds import sabotage

from samefn.networks import Residual
from samefn.skip.absorption import absorb, flip
from samefn.skip.criterion import trace_test
from samefn.skip.generic import absorbing_on_grid, mean_length, negative_overlap


@sabotage("A-C11", "a residual block forgets its skip", "quadratic_and_not_zero", "independent_equations")
def skip_is_forgotten(world):
    world.method(Residual, "forward", lambda self, x: self.block(x))


@sabotage("A-C11", "turning a set of units leaves out the last of them", "independent_equations")
def one_unit_is_forgotten(world):
    world.replace(flip, lambda block, units: flip(block, list(units)[:-1]))


@sabotage("A-C11", "the mirror image is not mirrored: −x is refuted like +x", "four_laws_both_ways")
def skip_is_taken_for_the_identity(world):
    world.replace(absorb, lambda residual: absorb(Residual(residual.block)))


@sabotage(
    "A-C11", "the margin is the distance of the empty set", "four_laws_both_ways", "margin_below_every_set"
)
def only_the_empty_set_is_tried(world):
    world.replace(
        absorb,
        lambda residual: replace(absorb(residual), margin=float(residual.skip_matrix().detach().norm())),
    )


@sabotage("A-C11", "W_down may be as large as it likes on a grid", "shares_on_grids")
def grid_has_no_end(world):
    def count(l):
        p, q, r, s = np.meshgrid(*[np.arange(-l, l + 1)] * 4)
        det = p * s - q * r
        whole = (l**2 * np.stack([p, q, r, s])) % np.where(det != 0, det, 1) == 0
        return int(((det != 0) & whole.all(0)).sum())

    world.replace(absorbing_on_grid, count)


@sabotage("A-C11", "the mean length of a row is 3 % off", "expected_overlap")
def mean_length_is_off(world):
    world.wrap(mean_length, lambda length: 0.97 * length)


@sabotage("A-C11", "the overlap counts both signs", "expected_overlap")
def overlap_counts_both_signs(world):
    def both(up, down):
        return (up * down.transpose(-1, -2)).sum(-1).abs().sum(-1)

    world.replace(negative_overlap, both)


@sabotage("A-C11", "the trace test forgets the overlap", "standard_initialisation")
def trace_test_forgets_the_overlap(world):
    world.replace(trace_test, lambda residual: float(torch.trace(residual.skip_matrix())))
