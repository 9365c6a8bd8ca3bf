"""B-D2: when the function determines the weights.  Chapter ``equivariance/identifiable``."""

from __future__ import annotations

import itertools
import math
import operator
from collections import defaultdict
from fractions import Fraction

import sympy
import torch

from ...activations import Activation, get
from ...draw import Draw
from ...equivariance.identifiable import (
    closest_symmetry,
    exact_tanh,
    harmless_turns,
    random_legible,
    random_shallow,
    read_network,
    spare_unit_pair,
    turned,
    value_matrix,
    vanishing_sets,
    with_vanishing_sum,
)
from ...functions import gap
from ...networks import DeepMLP
from .. import Claim, require

claim = Claim(
    id="B-D2",
    title="One hidden layer: tanh weights are identifiable iff no unit is spare; ReLU and GELU weights "
    "without spare units iff no nonempty S has P_S = 0",
    source="tanh: Sussmann 1992; [B], Definition 2",
    hypotheses=(
        "no a_i = 0",
        "no u_i = 0",
        "no two (u_i, b_i) equal up to sign; for ReLU none a multiple of another",
        "for ReLU and GELU: no nonempty S with P_S = 0",
        "σ is tanh, ReLU or GELU",
    ),
    uses=("B-D1",),
    chapter="equivariance/identifiable",
)


@claim.exact("tanh has residue 1 at πi/2, and GELU'' is (2 − z²)φ(z)")
def poles_and_gaussians() -> str:
    t, z = sympy.Symbol("t"), sympy.Symbol("z", real=True)
    nearby = get("tanh").expression(sympy.I * sympy.pi / 2 + t)
    require(sympy.limit(t * nearby, t, 0) == 1, "tanh does not have residue 1 at πi/2")
    second = (2 - z**2) * sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
    gelu = get("gelu").expression(z)
    require(sympy.simplify(sympy.diff(gelu, z, 2) - second) == 0, "GELU'' is not (2 − z²)φ(z)")
    return "SymPy"


def _random_forms(draw: Draw, count: int) -> tuple[list[int], list[Fraction]]:
    """Different pairs (slope, scale), slopes 1 to 3, scales p/4, some of them with equal slopes."""
    pairs = [(s, Fraction(p, 4)) for s in (1, 2, 3) for p in range(1, 13)]
    chosen = [pairs[i] for i in draw.permutation(len(pairs))[:count].tolist()]
    return [s for s, _ in chosen], [c for _, c in chosen]


@claim.exact("six tanh units whose forms differ up to sign, and 1, are independent")
def different_units_are_independent(draw: Draw) -> str:
    slopes, scales = _random_forms(draw, 6)
    rank = value_matrix(slopes, scales).rank()
    require(rank == 7, f"six units and 1 span {rank} dimensions only: slopes {slopes}, scales {scales}")
    return f"rank {rank} in rational arithmetic"


Unit = tuple  # (u, b, a) on the line; for tanh e^{2b} stands for b


def _by_function(value: dict[Unit, list]) -> dict[tuple, set[tuple[Unit, Unit]]]:
    """All pairs of units by their function up to a constant, given the values of each unit at some points."""
    found = defaultdict(set)
    for pair in itertools.product(value, repeat=2):
        total = list(map(operator.add, *map(value.__getitem__, pair)))
        found[tuple(round(v - total[0], 6) for v in total)].add(pair)
    return found


@claim.exact(
    "any two tanh units on the line, small weights: one function only if signed permutations of them"
)
def all_small_tanh_networks() -> str:
    units = [(u, Fraction(p, 2), a) for u in range(-2, 3) for p in (1, 2, 4) for a in range(-2, 3)]
    values = {unit: [exact_tanh(*unit[:2], y) * unit[2] for y in range(1, 10)] for unit in units}
    common = math.lcm(*(v.denominator for row in values.values() for v in row))
    turn = {(u, b, a): (-u, 1 / b, -a) for u, b, a in units}
    decided = 0
    # four units have slopes of 8 at most in all, so nine points decide
    for members in _by_function(
        {unit: [int(v * common) for v in row] for unit, row in values.items()}
    ).values():
        for one, two in members:
            if one[0] * one[2] * two[0] * two[2] and two[:2] not in (one[:2], turn[one][:2]):
                orbit = [(p, q) for p in (one, turn[one]) for q in (two, turn[two])]
                orbit += [(q, p) for p, q in orbit]
                require(sorted(members) == sorted(orbit), f"{one}, {two} have the function of {members}")
                decided += 1
    require(decided, "no small network is irreducible")
    return f"{decided} irreducible ones among {len(units) ** 2}"


@claim.numeric("a tanh network 2 → 2 → 1, slopes and biases apart, is read off its values on the two axes")
def read_off_values(draw: Draw) -> str:
    network = random_legible(2, generator=draw)
    found = read_network(network, 2, 2)
    miss = closest_symmetry(network, found)
    require(miss < 1e-4, f"the weights that were read are off by {miss:.1e}")
    return f"weights to {miss:.0e}"


def _all_small_networks(name: str, scales: bool) -> str:
    """Two units on the line with small weights: one function iff order, scale if it is free, and turning S
    with P_S = 0 relate them.
    """
    units = list(itertools.product(range(-2, 3), (-1, 0, 1), range(-2, 3)))
    x = torch.tensor([-2, -1, -0.5, 0, 0.5, 1, 2])  # all kinks, and a point beyond them on either side
    sigma = get(name)
    values = {(u, b, a): (a * sigma(u * x + b)).tolist() for u, b, a in units}
    decided = twins = 0

    def normal(*pair: Unit) -> tuple:
        size = [abs(u) if scales and u else 1 for u, _, _ in pair]
        return tuple(sorted((u / s, b / s, a * s) for s, (u, b, a) in zip(size, pair, strict=True)))

    for members in _by_function(values).values():
        for (u, b, a), (v, w, c) in members:
            spare = u * w == v * b if scales else (v, w) in ((u, b), (-u, -b))
            if u * a * v * c and not spare:
                wanted = {normal((u, b, a), (v, w, c))}
                if a * u + c * v == 0:  # P_S for both; for one unit alone it is not 0
                    wanted.add(normal((-u, -b, a), (-v, -w, c)))
                found = {normal(*pair) for pair in members}
                require(found == wanted, f"the function of {wanted} is that of {found}")
                decided, twins = decided + 1, twins + len(wanted) - 1
    require(twins, "no small network has P_S = 0")
    return f"{decided} of {len(units) ** 2} without spare units, {twins} of them with P_S = 0"


@claim.exact(
    "any two relu units on the line, small weights: one function iff order, scale, and S with P_S = 0"
)
def all_small_relu_networks() -> str:
    return _all_small_networks("relu", scales=True)


@claim.numeric("any two gelu units on the line, small weights: one function iff order, and S with P_S = 0")
def all_small_gelu_networks() -> str:
    return _all_small_networks("gelu", scales=False)


def _only_the_planted_set(activation: str, draw: Draw) -> str:
    order = draw.permutation(6).tolist()
    units, decoy = tuple(sorted(order[:3])), order[3:]
    layers = with_vanishing_sum(random_shallow(activation, 6, generator=draw), units).layers
    up, down = layers.weights[0], layers.weights[1].clone()
    trace = (down[:, decoy] * up[decoy].T).sum()
    down[:, decoy[0]] -= trace * up[decoy[0]] / up[decoy[0]].norm() ** 2  # P_S ≠ 0 with trace 0
    network = DeepMLP([up, down], layers.biases, activation)
    vanishing, kept = vanishing_sets(network), harmless_turns(network, draw.normal(100, 2))
    require(vanishing == [units], f"{activation}: P_S = 0 for {vanishing}, planted {units}")
    require(kept == [units], f"{activation}: turning {kept} keeps the function, planted {units}")
    return f"S = {units}"


@claim.numeric("relu, 2 → 6 → 2: of 63 ways to turn units only the one with P_S = 0 keeps the function")
def relu_turns(draw: Draw) -> str:
    return _only_the_planted_set("relu", draw)


@claim.numeric("gelu, 2 → 6 → 2: of 63 ways to turn units only the one with P_S = 0 keeps the function")
def gelu_turns(draw: Draw) -> str:
    return _only_the_planted_set("gelu", draw)


def _unrelated(one: DeepMLP, other: DeepMLP, x: torch.Tensor) -> str:
    """One function, and no order, signs or (ReLU) positive factors take one to the other: all are tried."""
    change = gap(one, other, x)
    require(change < 1e-9, f"the functions differ by {change:.1e}")
    miss = closest_symmetry(_with_unit_rows(one), _with_unit_rows(other))
    require(miss > 1e-6, f"a symmetry relates them, miss {miss:.1e}")
    return f"difference {change:.0e}, the nearest symmetry misses by {miss:.2f}"


def _with_unit_rows(network: DeepMLP) -> DeepMLP:
    """Rows of norm 1 where the activation lets factors through."""
    layers = network.layers
    size = layers.rows(0).norm(dim=1) if layers.activations[0].degree == 1 else torch.ones(layers.widths)
    layers = layers.replaced(0, layers.weights[0] / size[:, None], layers.biases[0] / size)
    return network.rebuilt(layers.replaced(1, layers.weights[1] * size))


@claim.control("no a_i = 0", "tanh, a zero outgoing column: one function, all 48 signed permutations miss")
def zero_outgoing_column(draw: Draw) -> str:
    return _unrelated(*spare_unit_pair("zero outgoing column", generator=draw), draw.normal(100, 2))


@claim.control("no u_i = 0", "tanh, a constant unit: one function, all 48 signed permutations miss")
def constant_unit(draw: Draw) -> str:
    return _unrelated(*spare_unit_pair("constant unit", generator=draw), draw.normal(100, 2))


@claim.control(claim.hypotheses[2], "tanh, equal up to sign: one function, all 48 signed permutations miss")
def equal_up_to_sign(draw: Draw) -> str:
    return _unrelated(*spare_unit_pair("equal up to sign", generator=draw), draw.normal(100, 2))


@claim.control(claim.hypotheses[2], "relu, forms ℓ and 3ℓ: they share their weight in another way")
def relu_multiples(draw: Draw) -> str:
    layers = random_shallow("relu", 3, generator=draw).layers
    rows, down, moved = layers.rows(0), layers.weights[1], draw.normal(2)
    rows[1] = 3 * rows[0]
    shared = torch.stack([down[:, 0] + 3 * moved, down[:, 1] - moved, down[:, 2]], 1)
    layers = layers.replaced(0, rows[:, :2], rows[:, 2])
    one, other = (DeepMLP(w.weights, w.biases, w.activations) for w in (layers, layers.replaced(1, shared)))
    return _unrelated(one, other, draw.normal(100, 2))


def _three_turned(activation: str, draw: Draw) -> str:
    network = with_vanishing_sum(random_shallow(activation, 4, generator=draw), (0, 1, 2))
    return _unrelated(network, turned(network, (0, 1, 2)), draw.normal(100, 2))


@claim.control(claim.hypotheses[3], "relu, P_S = 0 for three units: turning them around keeps the function")
def relu_is_not_identifiable(draw: Draw) -> str:
    return _three_turned("relu", draw)


@claim.control(claim.hypotheses[3], "gelu, P_S = 0 for three units: turning them around keeps the function")
def gelu_is_not_identifiable(draw: Draw) -> str:
    return _three_turned("gelu", draw)


@claim.control(claim.hypotheses[4], "σ = z/2 + z², odd slope ½ too: two units with other rows do the same")
def square_units(draw: Draw) -> str:
    square = Activation("z/2 + z²", lambda z: z / 2 + z**2, lambda z: z / 2 + z**2, odd_slope=0.5)
    one = random_shallow(square, 2, (1, 1), generator=draw)
    up, bias = torch.ones(2, 1), torch.tensor([1.0, -1])

    def coefficients(u: torch.Tensor, b: torch.Tensor) -> torch.Tensor:  # of x and x² in each unit
        return torch.stack([u[:, 0] / 2 + 2 * u[:, 0] * b, u[:, 0] ** 2])

    wanted = coefficients(one.weights[0], one.biases[0]) @ one.weights[1].T
    down = torch.linalg.solve(coefficients(up, bias), wanted).T
    constant = one(torch.zeros(1)) - down @ square(bias)
    other = DeepMLP([up, down], [bias, constant], square)
    return _unrelated(one, other, draw.normal(100, 1))
