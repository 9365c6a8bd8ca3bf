"""B-D2: when the function determines the weights.  Chapter ``equivariance/identifiable``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

import numpy as np
import sympy
import torch
from sympy.polys.domains import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ..networks import DeepMLP
from ..symmetry import align, random_symmetry
from . import Claim, Control, Evidence, require


def random_shallow(activation: str, units: int, generator: torch.Generator, sizes: tuple[int, int] = (2, 2)) -> DeepMLP:
    """One hidden layer with standard normal weights and biases; ``sizes`` are the inputs and the outputs."""

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    d, k = sizes
    return DeepMLP([normal(units, d), normal(k, units)], [normal(units), normal(k)], activation)


def parts(network: DeepMLP) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Copies of the rows u_i, the columns a_i, the biases b_i and the output bias c."""
    (up, down), (bias, out) = network.weights, network.biases
    return tuple(w.detach().clone() for w in (up, down, bias, out))


def irreducible(network: DeepMLP, tolerance: float = 1e-9) -> bool:
    """Sussmann's three conditions: no a_i = 0, no u_i = 0, no two (u_i, b_i) equal up to sign."""
    up, down, bias, _ = parts(network)
    forms = torch.cat([up, bias[:, None]], 1)
    distance = torch.minimum(torch.cdist(forms, forms), torch.cdist(forms, -forms)).fill_diagonal_(1)
    return bool(down.norm(dim=0).min() > tolerance and up.norm(dim=1).min() > tolerance and distance.min() > tolerance)


def spare_unit_pair(kind: str, generator: torch.Generator) -> tuple[DeepMLP, DeepMLP]:
    """Two tanh networks, three units each, with one function; one of Sussmann's conditions fails, by ``kind``.

    ``kind`` is "zero outgoing column", "equal up to sign" or "constant unit".  Raises ValueError for any other.
    """
    up, down, bias, out = parts(random_shallow("tanh", 3, generator))
    move = torch.randn(2, generator=generator, dtype=torch.float64)
    if kind == "zero outgoing column":
        down[:, 2] = 0
    elif kind == "equal up to sign":
        up[2], bias[2] = -up[1], -bias[1]
    elif kind == "constant unit":
        up[2] = 0
    else:
        raise ValueError(f"kind must be 'zero outgoing column', 'equal up to sign' or 'constant unit', got {kind!r}")
    one = DeepMLP([up, down], [bias, out])
    up, down, bias, out = parts(one)
    if kind == "zero outgoing column":
        up[2] += move
    else:
        down[:, 2] += move  # unit 2 is -tanh of unit 1's form, or the constant tanh(b)
    if kind == "equal up to sign":
        down[:, 1] += move
    if kind == "constant unit":
        out -= move * bias[2].tanh()
    return one, DeepMLP([up, down], [bias, out])


def turned(network: DeepMLP, units: tuple[int, ...]) -> DeepMLP:
    """The network with the forms u_i·x + b_i of ``units`` negated, and Σ a_i b_i of these units added to c.

    For σ(z) − σ(−z) = z it computes f(x) − P_S x, so the same function if P_S = 0.
    """
    up, down, bias, out = parts(network)
    S = list(units)
    out += down[:, S] @ bias[S]
    up[S], bias[S] = -up[S], -bias[S]
    return DeepMLP([up, down], [bias, out], network.activations)


def with_vanishing_sum(network: DeepMLP, units: tuple[int, ...]) -> DeepMLP:
    """Outgoing weights of the first two of ``units`` changed so that Σ a_i u_iᵀ over ``units`` is 0 (d = 2)."""
    up, down, bias, out = parts(network)
    first, rest = list(units[:2]), list(units[2:])
    down[:, first] = -(down[:, rest] @ up[rest]) @ torch.linalg.inv(up[first])
    return DeepMLP([up, down], [bias, out], network.activations)


def _subsets(n: int) -> Tensor:
    """All subsets of n units, one row of 0 and 1 for each."""
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)), dtype=torch.float64)


def _named(subsets: Tensor) -> list[tuple[int, ...]]:
    return [tuple(c.nonzero().flatten().tolist()) for c in subsets if c.any()]


def vanishing_sets(network: DeepMLP, tolerance: float = 1e-9) -> list[tuple[int, ...]]:
    """All nonempty S with ‖P_S‖ ≤ tolerance, by trying all 2^n."""
    up, down, _, _ = parts(network)
    choices = _subsets(len(up))
    sums = torch.linalg.matrix_norm(torch.einsum("sm,km,md->skd", choices, down, up))
    return _named(choices[sums <= tolerance])


def harmless_turns(network: DeepMLP, x: Tensor, tolerance: float = 1e-9) -> list[tuple[int, ...]]:
    """All nonempty S whose :func:`turned` network has the values of the network at x, relative to the largest."""
    up, down, bias, out = parts(network)
    choices = _subsets(len(up))
    sign = 1 - 2 * choices
    hidden = network.activations[0](sign[:, None] * (x @ up.T + bias))  # (2^n, batch, n)
    values = hidden @ down.T + out + ((choices * bias) @ down.T)[:, None]
    gaps = (values - values[0]).abs().amax((1, 2)) / values[0].abs().max()
    return _named(choices[gaps <= tolerance])


@cache
def _signed_permutations(n: int) -> Tensor:
    """All 2^n n! of them, of shape (2^n n!, n, n)."""
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=n)), dtype=torch.float64)
    orders = torch.tensor(list(itertools.permutations(range(n))))
    return (torch.diag_embed(signs)[:, None] @ torch.eye(n, dtype=torch.float64)[orders][None]).flatten(0, 1)


def closest_symmetry(a: DeepMLP, b: DeepMLP) -> float:
    """The least over all signed permutations k of the largest difference of a weight of k·a from that of b."""
    (up, down, bias, out), (up_b, down_b, bias_b, out_b) = parts(a), parts(b)
    k = _signed_permutations(len(up))
    gaps = [(k @ up - up_b).flatten(1), k @ bias - bias_b, (down @ k.mT - down_b).flatten(1)]
    return float(torch.maximum(torch.cat(gaps, 1).abs().amax(1), (out - out_b).abs().max()).min())


def first_pole(slope: float, offset: float) -> complex:
    """The pole of tanh(slope·t + offset) in the upper half-plane that is nearest to the real line."""
    return complex(-offset / slope, np.pi / (2 * abs(slope)))


def residue(f, pole: complex, radius: float, points: int = 64) -> np.ndarray:
    """(1/2πi) ∮ f(t) dt over a circle by the trapezoidal rule; ``f`` maps complex (points,) to (points, k)."""
    step = radius * np.exp(2j * np.pi * np.arange(points) / points)
    return (f(pole + step) * step[:, None]).mean(0)


@cache
def _pole_of_tanh() -> None:
    """tanh has residue 1 at πi/2, and tanh(αt + γ) has residue 1/α where αt + γ = πi/2."""
    t = sympy.Symbol("t")
    slope, offset = sympy.Symbol("alpha", positive=True), sympy.Symbol("gamma", real=True)
    pole = (sympy.I * sympy.pi / 2 - offset) / slope
    nearby = sympy.sinh(sympy.pi * sympy.I / 2 + t) / sympy.cosh(sympy.pi * sympy.I / 2 + t)
    require(sympy.limit(t * nearby.rewrite(sympy.exp), t, 0) == 1, "tanh does not have residue 1 at πi/2")
    require(sympy.simplify(slope * (pole + t / slope) + offset - (sympy.I * sympy.pi / 2 + t)) == 0, "the pole is elsewhere")
    z = sympy.Symbol("z", real=True)
    sigma = z * (1 + sympy.erf(z / sympy.sqrt(2))) / 2
    second = (2 - z**2) * sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
    require(sympy.simplify(sympy.diff(sigma, z, 2) - second) == 0, "GELU'' is not (2 − z²)φ(z)")


def value_matrix(slopes: list[int], scales: list[Fraction]) -> DomainMatrix:
    """Exact values of 1 and of tanh(slope·t + log(scale)/2), a row for each of as many t as decide independence.

    With y = e^{2t} the unit is (c y^s − 1)/(c y^s + 1), c the scale.  A combination of the columns is a
    rational function of y whose numerator has degree at most the sum of the slopes, so it is zero if it is
    zero at one point more: the rank is the dimension of the span of the functions.
    """
    rows = []
    for y in range(1, sum(slopes) + 2):
        powers = [c * Fraction(y) ** s for s, c in zip(slopes, scales)]
        rows.append([QQ(1)] + [QQ((p - 1).numerator * (p + 1).denominator, (p - 1).denominator * (p + 1).numerator) for p in powers])
    return DomainMatrix(rows, (len(rows), len(slopes) + 1), QQ)


def _random_forms(rng: np.random.Generator, count: int) -> tuple[list[int], list[Fraction]]:
    """Different pairs (slope, scale), slopes 1 to 3, scales p/4, some of them with equal slopes."""
    pairs = [(s, Fraction(p, 4)) for s in (1, 2, 3) for p in range(1, 13)]
    chosen = [pairs[i] for i in rng.permutation(len(pairs))[:count]]
    return [s for s, _ in chosen], [c for _, c in chosen]


def evidence(seed: int) -> Iterator[Evidence]:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)

    _pole_of_tanh()
    yield Evidence("exact", "tanh(αt + γ) has residue 1/α at (πi/2 − γ)/α, and GELU'' = (2 − z²)φ", "SymPy")

    slopes, scales = _random_forms(rng, 6)
    rank = value_matrix(slopes, scales).rank()
    require(rank == 7, f"six units and 1 span {rank} dimensions only: slopes {slopes}, scales {scales}")
    yield Evidence("exact", "six different tanh units and 1 are independent", f"rank {rank} in rational arithmetic")

    network = random_shallow("tanh", 6, generator)
    require(irreducible(network), "random weights are reducible")
    moved = random_symmetry(network, generator).apply(network)
    found = align(network, moved)
    require(found is not None and found.error < 1e-12, f"a symmetry was not found again: {found}")
    yield Evidence("numeric", "irreducible tanh networks related by a symmetry are aligned", f"error {found.error:.1e}")

    up, down, bias, out = (w.numpy() for w in parts(network))
    direction = rng.standard_normal(2)
    slope = up @ direction
    f = lambda t: np.tanh(t[:, None] * slope + bias) @ down.T + out  # noqa: E731
    top = int(np.abs(slope).argmax())
    pole = first_pole(slope[top], bias[top])
    others = [(complex(0, np.pi / 2) * n - b) / s for i, (s, b) in enumerate(zip(slope, bias)) for n in range(-25, 26, 2) if (i, n) not in ((top, 1), (top, -1))]
    radius = min(abs(pole - q) for q in others if abs(pole - q) > 1e-9) / 2
    read = residue(f, pole, radius).real * slope[top]
    gap = float(np.abs(read - down[:, top]).max() / np.abs(down[:, top]).max())
    require(gap < 1e-6, f"the residue at the nearest pole is not the outgoing weight: off by {gap:.1e}")
    yield Evidence("numeric", "the pole nearest to the line gives one unit's slope, bias and outgoing weight", f"off by {gap:.1e}")

    for activation in ("relu", "gelu"):
        units = tuple(sorted(torch.randperm(6, generator=generator)[:3].tolist()))
        network = with_vanishing_sum(random_shallow(activation, 6, generator), units)
        require(vanishing_sets(network) == [units], f"{activation}: P_S = 0 for {vanishing_sets(network)}, planted {units}")
        x = torch.randn(100, 2, generator=generator, dtype=torch.float64)
        kept = harmless_turns(network, x)
        require(kept == [units], f"{activation}: turning {kept} keeps the function, planted {units}")
        yield Evidence("numeric", f"{activation}: of 63 ways to turn units only the one with P_S = 0 keeps the function", f"S = {units}")


def controls(seed: int) -> Iterator[Control]:
    rng, generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    x = torch.randn(100, 2, generator=generator, dtype=torch.float64)

    for kind, dropped in (
        ("zero outgoing column", "a_i ≠ 0"),
        ("constant unit", "u_i ≠ 0"),
        ("equal up to sign", "(u_i, b_i) ≠ ±(u_j, b_j)"),
    ):
        one, other = spare_unit_pair(kind, generator)
        gap = float((one(x) - other(x)).abs().max() / one(x).abs().max())
        require(gap < 1e-12, f"{kind}: the functions differ by {gap:.1e}")
        miss = closest_symmetry(one, other)
        require(miss > 1e-6 and align(one, other) is None, f"{kind}: a symmetry relates them, miss {miss:.1e}")
        yield Control(dropped, f"{kind}: one function, and all 48 signed permutations miss", f"difference {gap:.0e}, miss {miss:.2f}")

    slopes, scales = _random_forms(rng, 6)
    rank = value_matrix(slopes[:5] + slopes[:1], scales[:5] + scales[:1]).rank()
    require(rank == 6, f"a repeated unit was not noticed: rank {rank}")
    yield Control("different units", "the exact rank drops for a repeated unit", f"rank {rank} of 7")

    for activation in ("relu", "gelu"):
        network = with_vanishing_sum(random_shallow(activation, 4, generator), (0, 1, 2))
        require(irreducible(network), f"{activation}: the weights are reducible")
        other = turned(network, (0, 1, 2))
        gap = float((network(x) - other(x)).abs().max() / network(x).abs().max())
        require(gap < 1e-11 and align(network, other) is None, f"{activation}: differ by {gap:.1e}, or aligned")
        yield Control("tanh", f"{activation}: irreducible, P_S = 0 for three units; turning them keeps the function", f"difference {gap:.0e}")


CLAIM = Claim(
    id="B-D2",
    title="The function of a tanh network with one hidden layer determines its weights iff no unit is spare",
    source="Sussmann 1992; [B], Definition 2",
    hypotheses=("σ = tanh, one hidden layer", "no a_i = 0", "no u_i = 0", "no two (u_i, b_i) equal up to sign"),
    uses=("B-D1",),
    chapter="equivariance/identifiable",
    evidence=evidence,
    controls=controls,
)
