"""B-D3: submodels; inactive, constant and cloned units.  Chapter ``equivariance/submodels``."""

from __future__ import annotations

import itertools

import torch

from ... import activations
from ...draw import Draw
from ...equivariance import finite
from ...equivariance import finite_examples as examples
from ...equivariance.alignment import align, random_symmetry
from ...equivariance.groups import cyclic, symmetric
from ...equivariance.identifiable import irreducible
from ...equivariance.planted import clone_factor, random_deep, with_spare_units
from ...equivariance.redundancy import drop, fold, merge, reduce
from ...equivariance.submodels import (
    anywhere,
    insert_clone,
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
    source="[B], submodels, in a formulation of ours",
    hypotheses=(
        "α* f(y; β(θ̃)) = f̃(α* y; θ̃) for all values y that occur",
        "α*_0 and α*_L are the identity",
        "for equivariant layers of the large model: each α f̃ α* is one of its layers",
        "the units removed are inactive, constant or clones",
        "for the smallest of all networks: tanh, one hidden layer",
    ),
    uses=("B-D1", "B-D2"),
    chapter="equivariance/submodels",
)
SQUARES, ENDS, LAYERS, MOVES, SMALLEST = claim.hypotheses


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


@claim.numeric("tanh, ReLU, GELU: β(θ̃) of a clone, for every θ̃: unequal columns, the row that θ̃ has")
def lifted(draw: Draw) -> str:
    worst, x, column = 0.0, draw.normal(50, 3), draw.normal(2)
    for name in ("tanh", "relu", "gelu"):
        small = random_deep(name, (3, 4, 2), generator=draw)
        q = clone_factor(small.activations[0])
        large = insert_clone(small, 1, 2, column, scale=q, factor=q)
        star = torch.zeros(4, 5)  # α* averages units 2 and 4
        star[:, :4] = torch.eye(4)
        star[2, 2], star[2, 4] = 0.5, 0.5 / q
        require(
            torch.equal(large.weights[1][:, 4], column), f"{name}: the clone's column is not the given one"
        )
        worst = max(worst, gap(small, large, x), *square_gaps(large, small, [star], occurring(large, x)))
    require(worst < 1e-12, f"squares and functions differ by {worst:.1e}")
    return f"squares and functions to {worst:.0e}"


def _planted(activation: str, draw: Draw) -> str:
    """A network grown by two clones and an inactive and a constant unit a layer, and hidden; then reduced."""
    small = random_deep(activation, generator=draw)  # 3 → 5 → 4 → 2
    large = with_spare_units(small, ("clone", "clone", "inactive", "constant"), generator=draw)
    large = random_symmetry(large, generator=draw).apply(large)
    found, x, points = reduce(large), draw.normal(50, 3), anywhere(large, 50, generator=draw)
    require(found.network.widths == (5, 4), f"reduced to widths {found.network.widths}, not (5, 4)")
    match, in_step = align(found.network, small), found.embed()
    require(match is not None and match.error < 1e-9, f"the original network was not found: {match}")
    maps = zip((*found.include, torch.eye(2)), (torch.eye(3), *found.project), points, strict=True)
    layers = []
    for i, (alpha, star, y) in enumerate(maps, 1):
        wanted = found.network.layer(i, y @ star.T) @ alpha.T
        layers.append(float((in_step.layer(i, y) - wanted).abs().max() / wanted.abs().max()))
    pairs = zip(found.include, found.project, strict=True)
    figures = {
        "squares where values occur": max(
            square_gaps(large, found.network, found.project, occurring(large, x))
        ),
        "α f̃ α* as layers": max(layers),
        "α*α": max(float((star @ alpha - torch.eye(len(star))).abs().max()) for alpha, star in pairs),
        "f": max(gap(small, found.network, x), gap(large, in_step, x)),
    }
    require(max(figures.values()) < 1e-8, f"{figures}")
    return ", ".join(f"{what} {error:.0e}" for what, error in figures.items())


@claim.numeric("tanh, 3 → 9 → 8 → 2: reduce finds the planted network, and each α f̃ α* is a layer")
def planted_tanh(draw: Draw) -> str:
    return _planted("tanh", draw)


@claim.numeric("relu, 3 → 9 → 8 → 2: reduce finds the planted network, and each α f̃ α* is a layer")
def planted_relu(draw: Draw) -> str:
    return _planted("relu", draw)


@claim.numeric("gelu, 3 → 9 → 8 → 2: reduce finds the planted network, and each α f̃ α* is a layer")
def planted_gelu(draw: Draw) -> str:
    return _planted("gelu", draw)


@claim.numeric(
    "three clones among the units: moves in two random orders end in networks related by a symmetry"
)
def any_order(draw: Draw) -> str:
    small = random_deep("tanh", (2, 2, 2, 1), generator=draw)
    large = with_spare_units(small, ("clone", "clone", "inactive"), generator=draw)
    one, other = (reduce_in_random_order(large, draw.rng()) for _ in range(2))
    require(one.widths == other.widths == (2, 2), f"ended with widths {one.widths} and {other.widths}")
    match = align(one, other)
    require(match is not None and match.error < 1e-9, f"two orders of moves ended apart: {match}")
    change = gap(small, one, draw.normal(50, 2))
    require(change < 1e-9, f"the moves changed the function by {change:.1e}")
    return f"error {match.error:.0e}"


def _best_single_unit(x: torch.Tensor, y: torch.Tensor) -> float:
    """The relative distance of y from the nearest a + b·tanh(ux + v), over all a, b and a grid of u, v."""
    u, v = torch.meshgrid(torch.linspace(0, 4, 41), torch.linspace(-4, 4, 81), indexing="ij")
    values = activations.get("tanh")(u[..., None] * x + v[..., None])
    values, y = values - values.mean(-1, keepdim=True), y - y.mean()
    part = (values * y).sum(-1) ** 2 / (values**2).sum(-1).clamp_min(1e-12)
    return max(0.0, float(1 - part.max() / (y**2).sum())) ** 0.5


@claim.numeric("tanh, one hidden layer: two units that reduce keeps are no single unit, clones are")
def smallest(draw: Draw) -> str:
    """All single units are tried, on a grid: Sussmann's theorem is not used."""
    x, slope, shift = torch.linspace(-3, 3, 40), 0.1 * draw.integer(5, 15), 0.1 * draw.integer(-10, 11)
    rows, biases = torch.tensor([[slope], [2 * slope]]), torch.tensor([shift, -shift])
    apart = DeepMLP([rows, torch.tensor([[1.0, -1]])], [biases, torch.zeros(1)])
    alike = insert_clone(
        DeepMLP([rows[:1], torch.ones(1, 1)], [biases[:1], torch.zeros(1)]), 1, 0, draw.normal(1)
    )
    misses = [_best_single_unit(x, net(x[:, None])[:, 0]) for net in (apart, alike)]
    widths = [reduce(net).network.widths for net in (apart, alike)]
    require(widths == [(2,), (1,)], f"reduced to widths {widths}")
    require(
        misses[1] < 1e-6 < 1e-2 < misses[0], f"best single unit: {misses[0]:.1e}, for clones {misses[1]:.1e}"
    )
    return f"best of 3,321 single units misses by {misses[0]:.2f}, for clones by {misses[1]:.0e}"


@claim.numeric("tanh, one hidden layer: what is left meets Sussmann's three conditions")
def nothing_left(draw: Draw) -> str:
    shallow = with_spare_units(random_deep("tanh", (3, 4, 2), generator=draw), generator=draw)
    small = reduce(shallow).network
    require(irreducible(small) and not irreducible(shallow), "reduce left a reducible network")
    return f"width {shallow.widths[0]} to {small.widths[0]}"


@claim.control(SQUARES, "one square fails at one value that occurs, in the last layer: f ≠ f̃")
def one_square_fails(draw: Draw) -> str:
    for _ in range(12):
        small, large, _ = finite.random_squares(everywhere=False, generator=draw)
        y = finite.function(large[:-1])[0]  # the value at input 0
        wrong = (large[-1][y] + 1) % (max(small[-1]) + 2)
        broken = (*large[:-1], (*large[-1][:y], wrong, *large[-1][y + 1 :]))
        require(finite.function(broken) != finite.function(small), f"{small} and {broken} have one function")
    return "12 of 12 models"


@claim.control(ENDS, "α*_0 or α*_L renames the inputs or outputs: all squares commute, and f ≠ f̃")
def renamed_ends(draw: Draw) -> str:
    theta, _, _ = finite.random_parameter(onto=True, generator=draw)
    n = len(theta[0])
    rename = tuple((i + 1) % n for i in range(n))
    inputs = (finite.compose(theta[0], rename), *theta[1:])  # f_1 = f̃_1 α*_0
    outputs = (*theta[:-1], finite.compose(finite.inverse(rename), theta[-1]))  # α*_L f_L = f̃_L
    for large in (inputs, outputs):
        require(finite.function(large) != finite.function(theta), f"{large} has the function of {theta}")
    return f"sets of {n} points"


def _ramps(rows: list[tuple[int, int]], x: tuple[int, int]) -> list[int]:
    """The values of ReLU units without biases."""
    return [max(u[0] * x[0] + u[1] * x[1], 0) for u in rows]


@claim.control(
    LAYERS, "star of three ReLU units: all else holds, and neither network with its function follows x ↦ −x"
)
def star() -> str:
    """α* = (1, 1, 1), f̃_1 = f, f̃_2 = id and α = (1, 1, 1)/3: the squares are strict, θ̃ is identifiable."""
    rows = [(1, 0), (0, 1), (-1, -1)]
    points = list(itertools.product(range(-4, 5), repeat=2))
    minus = lambda x: (-x[0], -x[1])
    require(all(sum(_ramps(rows, x)) == sum(_ramps(rows, minus(x))) for x in points), "f(−x) ≠ f(x)")
    # α f̃_1 is no layer: f/3 vanishes at 0 alone, a ReLU unit on a half-plane if not nowhere or everywhere
    require([x for x in points if not any(_ramps(rows, x))] == [(0, 0)], "f vanishes elsewhere")
    for side in (rows, [minus(u) for u in rows]):
        merged = [
            (x, y)
            for x, y in itertools.combinations(points, 2)
            if _ramps(side, x) == _ramps(side, y) and _ramps(side, minus(x)) != _ramps(side, minus(y))
        ]
        require(merged, f"the first layer of {side} could follow x ↦ −x")
    return "layer 1 merges points but not their negatives (integers)"


@claim.control(
    LAYERS, "finite sets: a submodel with adjunction that swallows layer 2; no θ' has equivariant layers"
)
def swallowed_layer() -> str:
    submodel, rho_in, rho_out = examples.swallowing_submodel()
    (theta,) = submodel.small
    holds = submodel.small.identifiable(theta) and submodel.small.has_adjunction(rho_in, rho_out)
    require(holds and submodel.embed(theta) not in submodel.large, "not the axiom alone is missing")
    every = [symmetric(n) for n in submodel.large.sizes[1:-1]]
    found = [finite.all_latent_actions(cyclic(2), other, rho_in, rho_out, every) for other in submodel.large]
    require(not any(found), f"latent actions {found}")
    return f"{len(found)} parameters, no latent action"


def _wide(draw: Draw) -> tuple[DeepMLP, torch.Tensor]:
    """A tanh network 3 → 7 → 2 whose unit 4 is a clone of unit 0, 5 inactive and 6 constant; and points."""
    network = random_deep("tanh", (3, 4, 2), generator=draw)
    return with_spare_units(network, generator=draw), draw.normal(100, 3)


@claim.control(MOVES, "different units merged, an active one dropped, one with weights folded: f changes")
def wrong_units(draw: Draw) -> str:
    large, x = _wide(draw)
    moves = merge(large, 1, 1, 0), drop(large, 1, 1), fold(large, 1, 1)
    changes = [gap(large, move.network, x) for move in moves]
    require(min(changes) > 1e-6, f"the function changes by {changes}")
    return ", ".join(f"{change:.2f}" for change in changes)


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


@claim.control("β gives the clone the row that θ̃ has", "for another θ̃ with the old row, the function changes")
def old_row(draw: Draw) -> str:
    large, x = _wide(draw)
    other = random_deep("tanh", (3, 4, 2), generator=draw)
    lifted = insert_clone(other, 1, 0, large.weights[1][:, 4].detach(), scale=-1.0, factor=-1.0)
    layers, old = lifted.layers, large.layers
    rows = torch.cat([layers.rows(0)[:4], old.rows(0)[4:5]])
    stale = lifted.rebuilt(layers.replaced(0, rows[:, :-1], rows[:, -1]))
    kept, change = gap(other, lifted, x), gap(other, stale, x)
    require(kept < 1e-12 < 1e-6 < change, f"f changes by {kept:.1e}, with the old row by {change:.1e}")
    return f"by {change:.2f}"


@claim.control("values that occur", "clones with unequal shares: off these the square fails, α* averaging")
def unequal_shares(draw: Draw) -> str:
    large, x = _wide(draw)
    move = merge(large, 1, 4, 0, -1.0)
    on = max(square_gaps(large, move.network, [move.project], occurring(large, x)))
    off = max(square_gaps(large, move.network, [move.project], anywhere(large, 100, generator=draw)))
    require(on < 1e-12 < 1e-6 < off, f"squares {on:.1e} where values occur, {off:.1e} elsewhere")
    return f"by {off:.2f}"


@claim.control(SMALLEST, "GELU and ReLU: no move applies to four units, and two units give the same function")
def opposite_pairs(draw: Draw) -> str:
    for name in ("gelu", "relu"):
        pairs, row = two_opposite_pairs(name), torch.ones(1, 2)
        two = DeepMLP([torch.cat([row, -row]), torch.tensor([[1.0, -1]])], None, name)
        change = gap(pairs, two, draw.normal(50, 2))
        four = reduce(pairs).network.widths == (4,)
        require(four and change < 1e-12, f"{name}: reduced, or the functions differ by {change:.1e}")
    return "x₁ + x₂"
