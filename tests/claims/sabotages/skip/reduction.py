"""False worlds for A-L4."""

import sympy
import torch
from false_worlds import sabotage

from samefn.claims.skip import reduction
from samefn.networks import MLP, Residual, hyper_connection
from samefn.skip.absorption import absorb, flip


@sabotage("A-L4", "M⁻¹ is left out, in letters", "reduced_equation", "whole_number_block")
def no_inverse_in_letters(world):
    world.replace(reduction._reduced_columns, lambda M, down: down)


@sabotage("A-L4", "the inverse is the transpose", "reduced_equation", "whole_number_block")
def transpose_for_inverse(world):
    world.replace(reduction._reduced_columns, lambda M, down: M.T * down)


@sabotage("A-L4", "M⁻¹ is left out of blocks", "misses_differ_by_the_skip", "same_set", "distances_scale")
def no_inverse(world):
    world.replace(reduction._reduced, lambda residual: Residual(residual.block))


@sabotage("A-L4", "M⁻¹ multiplies the rows, not the columns", "misses_differ_by_the_skip", "same_set")
def inverse_on_the_rows(world):
    reduce = reduction._reduced

    def reduced(residual):
        wrong = reduce(residual)
        M, block = residual.skip_matrix(), residual.block
        wrong.block.down.data, wrong.block.up.data = block.down, torch.linalg.solve(M.T, block.up.T).T
        return wrong

    world.replace(reduce, reduced)


@sabotage("A-L4", "the skip is applied as its transpose", "whole_number_block", "misses_differ_by_the_skip")
def transposed_skip(world):
    world.method(Residual, "forward", lambda self, x: x @ self.skip_matrix() + self.block(x))


@sabotage("A-L4", "absorb asks for P_S = −I whatever the skip", "same_set")
def absorb_ignores_the_skip(world):
    world.replace(absorb, lambda residual: absorb(Residual(residual.block)))


@sabotage("A-L4", "a set of units is turned but for the last of them", "same_set")
def one_unit_is_forgotten(world):
    world.replace(flip, lambda block, units: flip(block, list(units)[:-1]))


@sabotage("A-L4", "streams are mixed by I ⊗ C", "hyper_connections", "streams_that_are_not_read")
def factors_exchanged(world):
    world.replace(hyper_connection, lambda C, d: torch.kron(torch.eye(d), C))


@sabotage("A-L4", "streams are mixed by the transpose of C", "hyper_connections")
def mixing_transposed(world):
    world.replace(hyper_connection, lambda C, d: hyper_connection(C.T.contiguous(), d))


@sabotage("A-L4", "a block reads the streams and their squares", "streams_that_are_not_read")
def blocks_read_more(world):
    world.method(MLP, "forward", lambda self, x: self.activation(x @ self.up.T + x.norm(dim=-1)[:, None]))


@sabotage(
    "A-L4",
    "the determinant's coefficients are read backwards",
    "towards_the_uniform_mix",
    "singular_matrices_on_a_line",
)
def backwards(world):
    def ray(C):
        return sympy.Poly(determinant(C).all_coeffs()[::-1], sympy.Symbol("t"), domain="QQ")

    determinant = reduction._determinant_on_ray
    world.replace(determinant, ray)


@sabotage("A-L4", "all permutations are mixed in equal parts", "singular_matrices_on_a_line")
def equal_parts(world):
    mixture = reduction._permutation_mixture
    world.replace(mixture, lambda weights, q: mixture([1] * len(weights), q))


@sabotage("A-L4", "the uniform mix keeps a little of each stream", "towards_the_uniform_mix")
def nearly_uniform(world):
    uniform = reduction._uniform
    world.replace(uniform, lambda q: sympy.Rational(99, 100) * uniform(q) + sympy.eye(q) / 100)
