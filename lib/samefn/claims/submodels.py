"""B-D3: submodels; inactive, constant and cloned units.  Chapter ``equivariance/submodels``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..activations import Activation
from ..models import compose, function
from ..networks import DeepMLP
from ..symmetry import align, random_symmetry, reduce
from . import Claim, Control, Evidence, require
from .identifiable import irreducible
from .model import random_deep


@dataclass(frozen=True, eq=False)
class Move:
    """One unit removed from a network: the smaller network, and α and α* of the layer that lost it."""

    network: DeepMLP
    include: Tensor
    project: Tensor


def parameters(network: DeepMLP) -> tuple[list[Tensor], list[Tensor]]:
    """Copies of the weights and the biases."""
    return [w.detach().clone() for w in network.weights], [b.detach().clone() for b in network.biases]


def _without(network: DeepMLP, layer: int, unit: int, weights: list[Tensor], biases: list[Tensor]) -> Move:
    """The network with these parameters and without that unit; α and α* leave the others alone."""
    kept = [j for j in range(len(biases[layer - 1])) if j != unit]
    weights[layer - 1], biases[layer - 1] = weights[layer - 1][kept], biases[layer - 1][kept]
    weights[layer] = weights[layer][:, kept]
    rest = torch.eye(len(kept) + 1, dtype=torch.float64)[kept]
    return Move(DeepMLP(weights, biases, network.activations), rest.T.clone(), rest.clone())


def drop(network: DeepMLP, layer: int, unit: int) -> Move:
    """Leave out an inactive unit of hidden layer ``layer`` (from 1); its outgoing weights should be zero."""
    return _without(network, layer, unit, *parameters(network))


def fold(network: DeepMLP, layer: int, unit: int) -> Move:
    """Leave out a constant unit and add what it contributes to the next bias; its incoming weights should be zero."""
    weights, biases = parameters(network)
    value = network.activations[layer - 1](biases[layer - 1][unit])
    biases[layer] = biases[layer] + weights[layer][:, unit] * value
    return _without(network, layer, unit, weights, biases)


def merge(network: DeepMLP, layer: int, unit: int, into: int, factor: float = 1.0, share: float = 1.0) -> Move:
    """Leave out ``unit``, a clone of ``into`` with ``factor`` times its value, and add up the outgoing weights.

    α copies and α* averages.  ``share`` is what the sum is multiplied by: 1, unless a control wants it wrong.
    """
    weights, biases = parameters(network)
    weights[layer][:, into] = share * (weights[layer][:, into] + factor * weights[layer][:, unit])
    move = _without(network, layer, unit, weights, biases)
    place = into - (into > unit)
    move.include[unit, place] = factor
    move.project[place, into], move.project[place, unit] = 0.5, 0.5 / factor
    return move


def square_gaps(large: DeepMLP, small: DeepMLP, project: Sequence[Tensor], points: Sequence[Tensor]) -> list[float]:
    """For each layer the largest ‖α*_i f_i(y) − f̃_i(α*_{i−1} y)‖ over ``points[i − 1]``, relative to the largest ‖f̃_i‖.

    ``project`` holds α* of the hidden layers; at both ends it is the identity.
    """
    stars = [torch.eye(large.dim_in, dtype=torch.float64), *project, torch.eye(large.dim_out, dtype=torch.float64)]
    gaps = []
    for i, y in enumerate(points, 1):
        below = small.layer(i, y @ stars[i - 1].T).detach()
        gaps.append(float((large.layer(i, y).detach() @ stars[i].T - below).abs().max() / below.abs().max()))
    return gaps


def occurring(network: DeepMLP, x: Tensor) -> list[Tensor]:
    """Inputs x and the values that the hidden layers take on them: points of V_0, …, V_{L−1} that occur."""
    values = [x]
    for i in range(1, len(network.weights)):
        values.append(network.layer(i, values[-1]).detach())
    return values


def anywhere(network: DeepMLP, count: int, generator: torch.Generator) -> list[Tensor]:
    """Standard normal points of V_0, …, V_{L−1}, whether they occur or not."""
    sizes = (network.dim_in, *network.widths)
    return [torch.randn(count, n, generator=generator, dtype=torch.float64) for n in sizes]


def clone_factor(activation: Activation) -> float:
    """A factor that a clone's value may have: −1 for odd activations, 2 for ReLU, else 1."""
    return {"sign": -1.0, "positive scaling": 2.0}.get(activation.symmetry, 1.0)


def with_spares(network: DeepMLP, generator: torch.Generator) -> DeepMLP:
    """The same function with three more units in each hidden layer: a clone of unit 0, an inactive and a constant one.

    The clone takes a random part of the outgoing weights, each output its own part.
    """
    weights, biases = parameters(network)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    for i, activation in enumerate(network.activations):
        factor, inputs = clone_factor(activation), weights[i].shape[1]
        bias = normal(1)
        rows = [weights[i], factor * weights[i][:1], normal(1, inputs), torch.zeros(1, inputs, dtype=torch.float64)]
        biases[i] = torch.cat([biases[i], factor * biases[i][:1], normal(1), bias])
        part, constant = normal(len(weights[i + 1]), 1), normal(len(weights[i + 1]), 1)
        weights[i] = torch.cat(rows)
        weights[i + 1] = torch.cat([weights[i + 1], part, torch.zeros_like(part), constant], 1)
        weights[i + 1][:, :1] -= factor * part
        biases[i + 1] = biases[i + 1] - constant[:, 0] * activation(bias)
    return DeepMLP(weights, biases, network.activations)


def available_moves(network: DeepMLP, tolerance: float = 1e-9) -> list[tuple]:
    """All moves that keep the function, as (name, layer, unit, ...): the arguments of drop, fold and merge."""
    moves: list[tuple] = []
    weights, biases = parameters(network)
    for i, activation in enumerate(network.activations):
        rows = torch.cat([weights[i], biases[i][:, None]], 1)
        n = len(rows)
        moves += [("drop", i + 1, j) for j in range(n) if weights[i + 1][:, j].abs().max() < tolerance]
        moves += [("fold", i + 1, j) for j in range(n) if weights[i][j].abs().max() < tolerance]
        if activation.degree == 1:
            factors = (rows.norm(dim=1) / rows.norm(dim=1)[:, None].clamp_min(tolerance))[None]  # [j, k]: |row k| / |row j|
        else:
            factors = torch.tensor([1.0, -1.0] if activation.symmetry == "sign" else [1.0], dtype=torch.float64)[:, None, None].expand(-1, n, n)
        gaps = (rows[None, None] - factors[..., None] * rows[None, :, None]).norm(dim=-1)
        moves += [("merge", i + 1, k, j, float(factors[s, j, k])) for s, j, k in (gaps < tolerance).nonzero().tolist() if j != k]
    return moves if min(network.widths) > 1 else []


def reduce_in_random_order(network: DeepMLP, rng: np.random.Generator) -> DeepMLP:
    """Apply available moves, one drawn at random after the other, until none is left."""
    while moves := available_moves(network):
        name, *arguments = moves[rng.integers(len(moves))]
        network = {"drop": drop, "fold": fold, "merge": merge}[name](network, *arguments).network
    return network


def random_squares(rng: np.random.Generator, everywhere: bool):
    """Finite maps θ̃ and θ and α*, L = 3, with commuting squares; with ``everywhere`` False only on values that occur."""
    small, large = rng.integers(2, 5, size=4), rng.integers(4, 8, size=4)
    large[[0, 3]] = small[[0, 3]]
    stars = [tuple(range(small[0]))]
    stars += [tuple(map(int, rng.permutation([*range(s), *rng.integers(s, size=n - s)]))) for s, n in zip(small[1:3], large[1:3])]
    stars += [tuple(range(small[3]))]
    theta = tuple(tuple(map(int, rng.integers(m, size=n))) for n, m in zip(small, small[1:]))
    lifted, values = [], set(range(large[0]))
    for i, f in enumerate(theta):
        above = [np.flatnonzero(np.array(stars[i + 1]) == p) for p in range(small[i + 1])]
        free = [not everywhere and y not in values for y in range(large[i])]
        lifted.append(tuple(
            int(rng.integers(large[i + 1])) if free[y] else int(rng.choice(above[f[stars[i][y]]])) for y in range(large[i])
        ))
        values = {lifted[-1][y] for y in values}
    return theta, tuple(lifted), stars


def evidence(seed: int) -> Iterator[Evidence]:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)

    strict = 0
    for trial in range(12):
        small, large, stars = random_squares(rng, everywhere=trial % 2 == 0)
        require(function(large) == function(small), f"the squares commute, the functions differ: {small}, {large}")
        strict += all(compose(stars[i + 1], f) == compose(small[i], stars[i]) for i, f in enumerate(large))
    require(strict >= 6, f"only {strict} of the models had squares that commute everywhere")
    yield Evidence("exact", "finite sets: squares that commute where values occur give f = f̃", f"12 models, {strict} with squares that commute everywhere")

    x = torch.randn(50, 3, generator=generator, dtype=torch.float64)
    for activation in ("tanh", "relu" if seed % 2 else "gelu"):
        small = random_deep(activation, generator)  # 3 → 5 → 4 → 2
        large = with_spares(small, generator)
        large = random_symmetry(large, generator).apply(large)
        found = reduce(large)
        require(found.network.widths == (5, 4), f"{activation}: reduced to widths {found.network.widths}, not (5, 4)")
        match = align(found.network, small)
        require(match is not None and match.error < 1e-9, f"{activation}: the original network was not found: {match}")
        on = max(square_gaps(large, found.network, found.project, occurring(large, x)))
        in_step = found.embed()
        step = max(square_gaps(in_step, found.network, found.project, anywhere(large, 50, generator)))
        identity = max(float((s @ a - torch.eye(len(s), dtype=torch.float64)).abs().max()) for a, s in zip(found.include, found.project))
        change = _change(large, in_step, x)
        require(max(on, step, identity, change) < 1e-8, f"{activation}: squares {on:.1e}, {step:.1e}, α*α {identity:.1e}, f {change:.1e}")
        yield Evidence(
            "numeric", f"{activation}, 3 → 8 → 7 → 2: reduce finds the planted network, all squares commute", f"{on:.0e} where values occur, {step:.0e} anywhere for β(θ̃)"
        )

    small = random_deep("tanh", generator, (2, 2, 2, 1))
    end = reduce_in_random_order(with_spares(small, generator), rng)
    match = align(end, small) if end.widths == (2, 2) else None
    require(match is not None and match.error < 1e-9, f"a random order of moves ended with widths {end.widths}; {match}")
    yield Evidence("numeric", "moves in a random order find the planted network too", f"error {match.error:.0e}")

    shallow = with_spares(random_deep("tanh", generator, (3, 4, 2)), generator)
    require(irreducible(reduce(shallow).network) and not irreducible(shallow), "reduce left a reducible network")
    yield Evidence("numeric", "tanh, one hidden layer: what is left is irreducible, hence smallest", "width 7 to 4")


def _change(large: DeepMLP, small: DeepMLP, x: Tensor) -> float:
    return float((large(x) - small(x)).abs().max() / large(x).abs().max())


def opposite_pairs() -> DeepMLP:
    """3x as two pairs of opposite GELU units: σ(x) − σ(−x) + σ(2x) − σ(−2x)."""
    rows = torch.tensor([[1.0], [-1], [2], [-2]], dtype=torch.float64)
    return DeepMLP([rows, rows.sign().T.contiguous()], [torch.zeros(4, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)], "gelu")


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(100, 3, generator=generator, dtype=torch.float64)
    large = with_spares(random_deep("tanh", generator, (3, 4, 2)), generator)  # units 4: clone, 5: inactive, 6: constant

    right, wrong = merge(large, 1, 4, 0, -1.0), merge(large, 1, 4, 0, -1.0, share=0.5)
    change = _change(large, wrong.network, x)
    require(_change(large, right.network, x) < 1e-12 < 1e-6 < change, f"averaging changes the function by {change:.1e}")
    yield Control("outgoing weights add up", "averaged instead: the function changes", f"by {change:.2f}")

    change = _change(large, drop(large, 1, 6).network, x)
    require(_change(large, fold(large, 1, 6).network, x) < 1e-12 < 1e-6 < change, f"not folding changes by {change:.1e}")
    yield Control("constants go into the next bias", "a constant unit dropped: the function changes", f"by {change:.2f}")

    move = merge(large, 1, 1, 0)
    gap, change = square_gaps(large, move.network, [move.project], occurring(large, x))[0], _change(large, move.network, x)
    require(min(gap, change) > 1e-6, f"merging different units: square {gap:.1e}, function {change:.1e}")
    yield Control("clones have equal rows", "different units merged: the first square and the function fail", f"by {gap:.2f} and {change:.2f}")

    on = max(square_gaps(large, right.network, [right.project], occurring(large, x)))
    off = max(square_gaps(large, right.network, [right.project], anywhere(large, 100, generator)))
    require(on < 1e-12 < 1e-6 < off, f"unequal shares: squares {on:.1e} where values occur, {off:.1e} elsewhere")
    yield Control("values that occur", "clones with unequal shares: off these values the square fails, α* averaging", f"by {off:.2f}")

    pairs = opposite_pairs()
    line = torch.linspace(-3, 3, 50, dtype=torch.float64)[:, None]
    two = DeepMLP([pairs.weights[0][:2].detach(), 3 * pairs.weights[1][:, :2].detach()], None, "gelu")
    change = _change(pairs, two, line)
    require(reduce(pairs).network.widths == (4,) and change < 1e-12, f"reduced, or the functions differ by {change:.1e}")
    yield Control("tanh", "GELU: no move applies to four units, and two units give the same function", f"difference {change:.0e}")


CLAIM = Claim(
    id="B-D3",
    title="Removing inactive, constant and cloned units gives a submodel with the same function",
    source="[B], Definition 3, in a formulation of ours",
    hypotheses=("α* f(y; β(θ̃)) = f̃(α* y; θ̃) for all values y that occur", "α*_0 and α*_L are the identity"),
    uses=("B-D1", "B-D2"),
    chapter="equivariance/submodels",
    evidence=evidence,
    controls=controls,
)
