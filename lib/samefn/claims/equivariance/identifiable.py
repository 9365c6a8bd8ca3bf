"""B-D2: when the function determines the weights.  Chapter ``equivariance/identifiable``."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import sympy

from ...draw import Draw
from ...equivariance.alignment import align, random_symmetry
from ...equivariance.identifiable import (
    closest_symmetry,
    first_pole,
    harmless_turns,
    irreducible,
    random_shallow,
    residue,
    spare_unit_pair,
    turned,
    value_matrix,
    vanishing_sets,
    with_vanishing_sum,
)
from ...functions import gap
from .. import Claim, require

claim = Claim(
    id="B-D2",
    title="The function of a tanh network with one hidden layer determines its weights iff no unit is spare",
    source="Sussmann 1992; [B], Definition 2",
    hypotheses=(
        "σ = tanh, one hidden layer",
        "no a_i = 0",
        "no u_i = 0",
        "no two (u_i, b_i) equal up to sign",
    ),
    uses=("B-D1",),
    chapter="equivariance/identifiable",
)


@claim.exact("tanh(αt + γ) has residue 1/α at (πi/2 − γ)/α, and GELU'' = (2 − z²)φ")
def poles_and_gaussians() -> str:
    t, z = sympy.Symbol("t"), sympy.Symbol("z", real=True)
    slope, offset = sympy.Symbol("alpha", positive=True), sympy.Symbol("gamma", real=True)
    centre = sympy.I * sympy.pi / 2
    pole = (centre - offset) / slope
    nearby = sympy.sinh(centre + t) / sympy.cosh(centre + t)
    require(sympy.limit(t * nearby.rewrite(sympy.exp), t, 0) == 1, "tanh does not have residue 1 at πi/2")
    moved = slope * (pole + t / slope) + offset - (centre + t)
    require(sympy.simplify(moved) == 0, "the pole is elsewhere")
    sigma = z * (1 + sympy.erf(z / sympy.sqrt(2))) / 2
    second = (2 - z**2) * sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
    require(sympy.simplify(sympy.diff(sigma, z, 2) - second) == 0, "GELU'' is not (2 − z²)φ(z)")
    return "SymPy"


def _random_forms(draw: Draw, count: int) -> tuple[list[int], list[Fraction]]:
    """Different pairs (slope, scale), slopes 1 to 3, scales p/4, some of them with equal slopes."""
    pairs = [(s, Fraction(p, 4)) for s in (1, 2, 3) for p in range(1, 13)]
    chosen = [pairs[i] for i in draw.permutation(len(pairs))[:count].tolist()]
    return [s for s, _ in chosen], [c for _, c in chosen]


@claim.exact("six different tanh units and 1 are independent")
def different_units_are_independent(draw: Draw) -> str:
    slopes, scales = _random_forms(draw, 6)
    rank = value_matrix(slopes, scales).rank()
    require(rank == 7, f"six units and 1 span {rank} dimensions only: slopes {slopes}, scales {scales}")
    return f"rank {rank} in rational arithmetic"


@claim.numeric("irreducible tanh networks related by a symmetry are aligned")
def symmetries_are_found(draw: Draw) -> str:
    network = random_shallow("tanh", 6, generator=draw)
    require(irreducible(network), "random weights are reducible")
    found = align(network, random_symmetry(network, generator=draw).apply(network))
    require(found is not None and found.error < 1e-12, f"a symmetry was not found again: {found}")
    return f"error {found.error:.1e}"


@claim.numeric("the pole nearest to the line gives one unit's slope, bias and outgoing weight")
def nearest_pole(draw: Draw) -> str:
    layers = random_shallow("tanh", 6, generator=draw).layers
    (up, down), (bias, out) = ([t.numpy() for t in kind] for kind in (layers.weights, layers.biases))
    slope = up @ draw.normal(2).numpy()
    top = int(np.abs(slope).argmax())
    pole = first_pole(slope[top], bias[top])
    odd = 1j * np.pi / 2 * np.arange(-25, 26, 2)
    apart = np.abs((odd - bias[:, None]) / slope[:, None] - pole)  # of the poles of all units from this one
    radius = apart[apart > 1e-9].min() / 2
    found = residue(lambda t: np.tanh(t[:, None] * slope + bias) @ down.T + out, pole, radius)
    miss = float(np.abs(found.real * slope[top] - down[:, top]).max() / np.abs(down[:, top]).max())
    require(miss < 1e-6, f"the residue at the nearest pole is not the outgoing weight: off by {miss:.1e}")
    return f"off by {miss:.1e}"


def _only_the_planted_set(activation: str, draw: Draw) -> str:
    units = draw.subset(6, 3)
    network = with_vanishing_sum(random_shallow(activation, 6, generator=draw), units)
    vanishing, kept = vanishing_sets(network), harmless_turns(network, draw.normal(100, 2))
    require(vanishing == [units], f"{activation}: P_S = 0 for {vanishing}, planted {units}")
    require(kept == [units], f"{activation}: turning {kept} keeps the function, planted {units}")
    return f"S = {units}"


@claim.numeric("relu: of 63 ways to turn units only the one with P_S = 0 keeps the function")
def relu_turns(draw: Draw) -> str:
    return _only_the_planted_set("relu", draw)


@claim.numeric("gelu: of 63 ways to turn units only the one with P_S = 0 keeps the function")
def gelu_turns(draw: Draw) -> str:
    return _only_the_planted_set("gelu", draw)


def _one_function_no_symmetry(kind: str, draw: Draw) -> str:
    one, other = spare_unit_pair(kind, generator=draw)
    change = gap(one, other, draw.normal(100, 2))
    require(change < 1e-12, f"{kind}: the functions differ by {change:.1e}")
    miss = closest_symmetry(one, other)
    require(miss > 1e-6 and align(one, other) is None, f"{kind}: a symmetry relates them, miss {miss:.1e}")
    return f"difference {change:.0e}, miss {miss:.2f}"


@claim.control("a_i ≠ 0", "zero outgoing column: one function, and all 48 signed permutations miss")
def zero_outgoing_column(draw: Draw) -> str:
    return _one_function_no_symmetry("zero outgoing column", draw)


@claim.control("u_i ≠ 0", "constant unit: one function, and all 48 signed permutations miss")
def constant_unit(draw: Draw) -> str:
    return _one_function_no_symmetry("constant unit", draw)


@claim.control(
    "(u_i, b_i) ≠ ±(u_j, b_j)", "equal up to sign: one function, and all 48 signed permutations miss"
)
def equal_up_to_sign(draw: Draw) -> str:
    return _one_function_no_symmetry("equal up to sign", draw)


@claim.control("different units", "the exact rank drops for a repeated unit")
def repeated_unit(draw: Draw) -> str:
    slopes, scales = _random_forms(draw, 6)
    rank = value_matrix(slopes[:5] + slopes[:1], scales[:5] + scales[:1]).rank()
    require(rank == 6, f"a repeated unit was not noticed: rank {rank}")
    return f"rank {rank} of 7"


def _turned_irreducible(activation: str, draw: Draw) -> str:
    network = with_vanishing_sum(random_shallow(activation, 4, generator=draw), (0, 1, 2))
    require(irreducible(network), f"{activation}: the weights are reducible")
    other = turned(network, (0, 1, 2))
    change = gap(network, other, draw.normal(100, 2))
    require(
        change < 1e-11 and align(network, other) is None, f"{activation}: differ by {change:.1e}, or aligned"
    )
    return f"difference {change:.0e}"


@claim.control("tanh", "relu: irreducible, P_S = 0 for three units; turning them keeps the function")
def relu_is_not_identifiable(draw: Draw) -> str:
    return _turned_irreducible("relu", draw)


@claim.control("tanh", "gelu: irreducible, P_S = 0 for three units; turning them keeps the function")
def gelu_is_not_identifiable(draw: Draw) -> str:
    return _turned_irreducible("gelu", draw)
