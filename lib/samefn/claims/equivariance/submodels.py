"""B-D3: submodels; inactive, constant and cloned units.  Chapter ``equivariance/submodels``."""

from __future__ import annotations

import torch

from ...draw import Draw
from ...equivariance import finite
from ...equivariance.alignment import align, random_symmetry
from ...equivariance.identifiable import irreducible
from ...equivariance.planted import random_deep, with_spare_units
from ...equivariance.redundancy import drop, fold, merge, reduce
from ...equivariance.submodels import (
    anywhere,
    occurring,
    reduce_in_random_order,
    square_gaps,
    two_opposite_pairs,
)
from ...functions import gap
from ...networks import DeepMLP
from .. import Claim, require

claim = Claim(
    id="B-D3",
    title="Removing inactive, constant and cloned units gives a submodel with the same function",
    source="[B], Definition 3, in a formulation of ours",
    hypotheses=(
        "α* f(y; β(θ̃)) = f̃(α* y; θ̃) for all values y that occur",
        "α*_0 and α*_L are the identity",
    ),
    uses=("B-D1", "B-D2"),
    chapter="equivariance/submodels",
)


@claim.exact("finite sets: squares that commute where values occur give f = f̃")
def finite_squares(draw: Draw) -> str:
    strict = 0
    for trial in range(12):
        small, large, stars = finite.random_squares(everywhere=trial % 2 == 0, generator=draw)
        same = finite.function(large) == finite.function(small)
        require(same, f"the squares commute, the functions differ: {small}, {large}")
        steps = zip(large, small, stars, stars[1:], strict=False)
        strict += all(finite.compose(after, f) == finite.compose(g, before) for f, g, before, after in steps)
    require(strict >= 6, f"only {strict} of the models had squares that commute everywhere")
    return f"12 models, {strict} with squares that commute everywhere"


def _planted(activation: str, draw: Draw) -> str:
    small = random_deep(activation, generator=draw)  # 3 → 5 → 4 → 2
    large = with_spare_units(small, generator=draw)
    large = random_symmetry(large, generator=draw).apply(large)
    found, x = reduce(large), draw.normal(50, 3)
    require(found.network.widths == (5, 4), f"reduced to widths {found.network.widths}, not (5, 4)")
    match = align(found.network, small)
    require(match is not None and match.error < 1e-9, f"the original network was not found: {match}")
    in_step = found.embed()
    on = max(square_gaps(large, found.network, found.project, occurring(large, x)))
    step = max(square_gaps(in_step, found.network, found.project, anywhere(large, 50, generator=draw)))
    pairs = zip(found.include, found.project, strict=True)
    identity = max(float((star @ a - torch.eye(len(star))).abs().max()) for a, star in pairs)
    figures = f"squares {on:.1e}, {step:.1e}, α*α {identity:.1e}"
    change = gap(large, in_step, x)
    require(max(on, step, identity, change) < 1e-8, f"{figures}, f {change:.1e}")
    return f"{on:.0e} where values occur, {step:.0e} anywhere for β(θ̃)"


@claim.numeric("tanh, 3 → 8 → 7 → 2: reduce finds the planted network, all squares commute")
def planted_tanh(draw: Draw) -> str:
    return _planted("tanh", draw)


@claim.numeric("relu, 3 → 8 → 7 → 2: reduce finds the planted network, all squares commute")
def planted_relu(draw: Draw) -> str:
    return _planted("relu", draw)


@claim.numeric("gelu, 3 → 8 → 7 → 2: reduce finds the planted network, all squares commute")
def planted_gelu(draw: Draw) -> str:
    return _planted("gelu", draw)


@claim.numeric("moves in a random order find the planted network too")
def any_order(draw: Draw) -> str:
    small = random_deep("tanh", (2, 2, 2, 1), generator=draw)
    end = reduce_in_random_order(with_spare_units(small, generator=draw), draw.rng())
    match = align(end, small) if end.widths == (2, 2) else None
    found = match is not None and match.error < 1e-9
    require(found, f"a random order of moves ended with widths {end.widths}; {match}")
    return f"error {match.error:.0e}"


@claim.numeric("tanh, one hidden layer: what is left is irreducible, hence smallest")
def nothing_left(draw: Draw) -> str:
    shallow = with_spare_units(random_deep("tanh", (3, 4, 2), generator=draw), generator=draw)
    small = reduce(shallow).network
    require(irreducible(small) and not irreducible(shallow), "reduce left a reducible network")
    return f"width {shallow.widths[0]} to {small.widths[0]}"


def _wide(draw: Draw) -> tuple[DeepMLP, torch.Tensor]:
    """A tanh network 3 → 7 → 2 whose unit 4 is a clone of unit 0, 5 inactive and 6 constant; and points."""
    network = random_deep("tanh", (3, 4, 2), generator=draw)
    return with_spare_units(network, generator=draw), draw.normal(100, 3)


@claim.control("outgoing weights add up", "averaged instead: the function changes")
def averaged(draw: Draw) -> str:
    large, x = _wide(draw)
    right, wrong = merge(large, 1, 4, 0, -1.0), merge(large, 1, 4, 0, -1.0, share=0.5)
    kept, change = gap(large, right.network, x), gap(large, wrong.network, x)
    require(
        kept < 1e-12 < 1e-6 < change, f"adding changes the function by {kept:.1e}, averaging by {change:.1e}"
    )
    return f"by {change:.2f}"


@claim.control("constants go into the next bias", "a constant unit dropped: the function changes")
def not_folded(draw: Draw) -> str:
    large, x = _wide(draw)
    kept, change = gap(large, fold(large, 1, 6).network, x), gap(large, drop(large, 1, 6).network, x)
    require(kept < 1e-12 < 1e-6 < change, f"folding changes by {kept:.1e}, not folding by {change:.1e}")
    return f"by {change:.2f}"


@claim.control("clones have equal rows", "different units merged: the first square and the function fail")
def no_clones(draw: Draw) -> str:
    large, x = _wide(draw)
    move = merge(large, 1, 1, 0)
    first = square_gaps(large, move.network, [move.project], occurring(large, x))[0]
    change = gap(large, move.network, x)
    require(min(first, change) > 1e-6, f"merging different units: square {first:.1e}, function {change:.1e}")
    return f"by {first:.2f} and {change:.2f}"


@claim.control(
    "values that occur", "clones with unequal shares: off these values the square fails, α* averaging"
)
def unequal_shares(draw: Draw) -> str:
    large, x = _wide(draw)
    move = merge(large, 1, 4, 0, -1.0)
    on = max(square_gaps(large, move.network, [move.project], occurring(large, x)))
    off = max(square_gaps(large, move.network, [move.project], anywhere(large, 100, generator=draw)))
    require(on < 1e-12 < 1e-6 < off, f"squares {on:.1e} where values occur, {off:.1e} elsewhere")
    return f"by {off:.2f}"


@claim.control("tanh", "GELU: no move applies to four units, and two units give the same function")
def gelu_pairs() -> str:
    pairs = two_opposite_pairs()
    (up, down), _ = pairs.weights, pairs.biases
    two = DeepMLP([up[:2].clone(), 3 * down[:, :2]], None, "gelu")
    change = gap(pairs, two, torch.linspace(-3, 3, 50)[:, None])
    four = reduce(pairs).network.widths == (4,)
    require(four and change < 1e-12, f"reduced, or the functions differ by {change:.1e}")
    return f"difference {change:.0e}"
