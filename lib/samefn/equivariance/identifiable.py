"""Networks with one hidden layer and two things that decide whether their function determines the weights.

The poles of tanh units on a complex line, from which Sussmann's proof and :func:`read_network` read the
weights; and, for ReLU and GELU, the ways to turn units around that keep the function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache, partial
from typing import Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import AAA
from sympy.polys.domains import QQ
from sympy.polys.matrices import DomainMatrix
from torch import Tensor

from ..activations import Activation
from ..arguments import Count, Finite, NonNegative, Positive
from ..draw import normal
from ..functions import gap
from ..networks import DeepMLP

Spare = Literal["zero outgoing column", "equal up to sign", "constant unit"]
SPARE: tuple[Spare, ...] = get_args(Spare)


def random_shallow(
    activation: str | Activation,
    units: Count,
    sizes: tuple[Count, Count] = (2, 2),
    *,
    generator: torch.Generator,
) -> DeepMLP:
    """One hidden layer with standard normal weights and biases; ``sizes`` are the inputs and the outputs.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import random_shallow
    >>> random_shallow("tanh", 5, generator=Draw(0)).widths
    (5,)
    """
    draw = partial(normal, generator=generator)
    d, outputs = sizes
    return DeepMLP([draw(units, d), draw(outputs, units)], [draw(units), draw(outputs)], activation)


def random_legible(units: Count, d: Count = 2, *, generator: torch.Generator) -> DeepMLP:
    """A tanh network d → units → 1 that :func:`read_network` can read, by construction.

    On each axis the sizes of the units' slopes lie in [1, 2), those of the biases in [0.3, 1.2), each in a
    part of its own and apart from the others; outgoing weights have sizes in [0.5, 1.5).  Signs are fair.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import random_legible
    >>> random_legible(3, generator=Draw(0)).widths
    (3,)
    """
    sizes = partial(torch.rand, generator=generator, dtype=torch.float64)
    parts = torch.arange(units, dtype=torch.float64)

    def signs(*shape: int) -> Tensor:
        return (sizes(*shape) < 0.5) * 2.0 - 1

    order = sizes(d, units).argsort(dim=1)  # which part on which axis
    slopes = 1 + ((parts + 0.6 * sizes(d, units)) / units).gather(1, order)
    bias = 0.3 + 0.9 * (parts + 0.6 * sizes(units)) / units
    down = (0.5 + sizes(1, units)) * signs(1, units)
    return DeepMLP([slopes.T * signs(units, d), down], [bias * signs(units), normal(1, generator=generator)])


def _parts(network: DeepMLP) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Copies of the rows u_i, the columns a_i, the biases b_i and the output bias b_out.

    Raises ValueError unless there is one hidden layer.
    """
    layers = network.layers
    if len(layers.weights) != 2:
        raise ValueError(f"network must have one hidden layer, got {len(layers.widths)}")
    up, down, bias, out = (t.clone() for t in (*layers.weights, *layers.biases))
    return up, down, bias, out


def irreducible(network: DeepMLP, tolerance: NonNegative = 1e-9) -> bool:
    """Sussmann's three conditions: no a_i = 0, no u_i = 0, no two (u_i, b_i) equal up to sign.

    >>> from samefn import DeepMLP
    >>> from samefn.equivariance.identifiable import irreducible
    >>> rows = torch.tensor([[1.0], [-1.0]])
    >>> irreducible(DeepMLP([rows, torch.ones(1, 2)]))  # the rows are equal up to sign
    False
    """
    up, down, bias, _ = _parts(network)
    forms = torch.cat([up, bias[:, None]], 1)
    distance = torch.minimum(torch.cdist(forms, forms), torch.cdist(forms, -forms)).fill_diagonal_(1)
    least = min(down.norm(dim=0).min(), up.norm(dim=1).min(), distance.min())
    return bool(least > tolerance)


def spare_unit_pair(kind: Spare, *, generator: torch.Generator) -> tuple[DeepMLP, DeepMLP]:
    """Two tanh networks, three units each, with one function; one of Sussmann's conditions fails, by
    ``kind``.

    ``kind`` is "zero outgoing column", "equal up to sign" or "constant unit".

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import closest_symmetry, spare_unit_pair
    >>> from samefn.functions import gap
    >>> one, other = spare_unit_pair("constant unit", generator=Draw(0))
    >>> gap(one, other, Draw(1).normal(100, 2)) < 1e-13, closest_symmetry(one, other) > 0.01
    (True, True)
    """
    up, down, bias, out = _parts(random_shallow("tanh", 3, generator=generator))
    move = torch.randn(2, generator=generator, dtype=torch.float64)
    if kind == "zero outgoing column":
        down[:, 2] = 0
    elif kind == "equal up to sign":
        up[2], bias[2] = -up[1], -bias[1]
    else:
        up[2] = 0
    one = DeepMLP([up, down], [bias, out])
    up, down, bias, out = _parts(one)
    if kind == "zero outgoing column":
        up[2] += move
    elif kind == "equal up to sign":
        down[:, 1:] += move[:, None]  # unit 2 is minus unit 1
    else:
        down[:, 2] += move
        out -= move * bias[2].tanh()
    return one, DeepMLP([up, down], [bias, out])


def _distinct(network: DeepMLP, units: Sequence[int]) -> list[int]:
    width = network.widths[0]
    if len(set(units)) < len(units) or not all(0 <= unit < width for unit in units):
        raise ValueError(f"units must be different ones from 0 to {width - 1}, got {tuple(units)}")
    return list(units)


def turned(network: DeepMLP, units: Sequence[int]) -> DeepMLP:
    """The network with the forms u_i·x + b_i of ``units`` negated, and their Σ a_i b_i added to b_out.

    For σ(z) − σ(−z) = z it computes f(x) − P_S x, so the same function if P_S = 0.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import random_shallow, turned, with_vanishing_sum
    >>> from samefn.functions import gap
    >>> network = with_vanishing_sum(random_shallow("gelu", 4, generator=Draw(0)), [0, 1, 2])
    >>> gap(network, turned(network, [0, 1, 2]), Draw(1).normal(100, 2)) < 1e-13
    True
    """
    up, down, bias, out = _parts(network)
    S = _distinct(network, units)
    out += down[:, S] @ bias[S]
    up[S], bias[S] = -up[S], -bias[S]
    return DeepMLP([up, down], [bias, out], network.activations)


def with_vanishing_sum(network: DeepMLP, units: Sequence[int]) -> DeepMLP:
    """Outgoing weights of the first two of ``units`` changed so that Σ a_i u_iᵀ over ``units`` is 0 (d =
    2).

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import random_shallow, vanishing_sets, with_vanishing_sum
    >>> network = with_vanishing_sum(random_shallow("gelu", 4, generator=Draw(0)), [0, 1, 2])
    >>> vanishing_sets(network)
    [(0, 1, 2)]
    """
    up, down, bias, out = _parts(network)
    first, rest = _distinct(network, units)[:2], list(units[2:])
    if len(first) < 2:
        raise ValueError(f"units must be at least two, got {tuple(units)}")
    down[:, first] = -(down[:, rest] @ up[rest]) @ torch.linalg.inv(up[first])
    return DeepMLP([up, down], [bias, out], network.activations)


def _subsets(n: int) -> Tensor:
    """All subsets of n units, one row of 0 and 1 for each."""
    return torch.tensor(list(itertools.product((0.0, 1.0), repeat=n)), dtype=torch.float64)


def _named(subsets: Tensor) -> list[tuple[int, ...]]:
    return [tuple(c.nonzero().flatten().tolist()) for c in subsets if c.any()]


def vanishing_sets(network: DeepMLP, tolerance: NonNegative = 1e-9) -> list[tuple[int, ...]]:
    """All nonempty S with ‖P_S‖_F ≤ tolerance, by trying all 2^n.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import random_shallow, vanishing_sets
    >>> vanishing_sets(random_shallow("gelu", 4, generator=Draw(0)))
    []
    """
    up, down, _, _ = _parts(network)
    choices = _subsets(len(up))
    sums = torch.linalg.matrix_norm(torch.einsum("sm,km,md->skd", choices, down, up))
    return _named(choices[sums <= tolerance])


def harmless_turns(
    network: DeepMLP, x: Float[Tensor, "batch {network.dim_in}"], tolerance: NonNegative = 1e-9
) -> list[tuple[int, ...]]:
    """All nonempty S whose :func:`turned` network has the values of the network at x, relative to the
    largest.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import harmless_turns, random_shallow, with_vanishing_sum
    >>> network = with_vanishing_sum(random_shallow("gelu", 4, generator=Draw(0)), [0, 1, 2])
    >>> harmless_turns(network, Draw(1).normal(20, 2))
    [(0, 1, 2)]
    """
    every = _named(_subsets(network.widths[0]))
    return [S for S in every if gap(network, turned(network, S), x) <= tolerance]


@cache
def _signed_permutations(n: int) -> Tensor:
    """All 2^n n! of them, of shape (2^n n!, n, n)."""
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=n)), dtype=torch.float64)
    orders = torch.tensor(list(itertools.permutations(range(n))))
    permutations = torch.eye(n, dtype=torch.float64)[orders]
    return (torch.diag_embed(signs)[:, None] @ permutations[None]).flatten(0, 1)


def closest_symmetry(a: DeepMLP, b: DeepMLP) -> float:
    """The least over all signed permutations k of the largest difference of a weight of k·a from that of
    b.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.alignment import random_symmetry
    >>> from samefn.equivariance.identifiable import closest_symmetry, random_shallow
    >>> network = random_shallow("tanh", 3, generator=Draw(0))
    >>> k = random_symmetry(network, generator=Draw(1))
    >>> closest_symmetry(network, k.apply(network)) < 1e-12
    True
    """
    (up, down, bias, out), (up_b, down_b, bias_b, out_b) = _parts(a), _parts(b)
    k = _signed_permutations(len(up))
    gaps = [(k @ up - up_b).flatten(1), k @ bias - bias_b, (down @ k.mT - down_b).flatten(1)]
    return float(torch.maximum(torch.cat(gaps, 1).abs().amax(1), (out - out_b).abs().max()).min())


def first_pole(slope: Finite, offset: Finite) -> complex:
    """The pole of tanh(slope·t + offset) in the upper half-plane that is nearest to the real line.

    >>> from samefn.equivariance.identifiable import first_pole
    >>> f"{first_pole(slope=2.0, offset=0.0).imag:.4f}"  # π/4
    '0.7854'
    """
    if slope == 0:
        raise ValueError("slope must not be 0: a constant has no pole")
    return complex(-offset / slope, np.pi / (2 * abs(slope)))


def residue(
    f: Callable[[np.ndarray], np.ndarray], pole: complex, radius: Positive, points: Count = 64
) -> np.ndarray:
    """(1/2πi) ∮ f(t) dt over a circle by the trapezoidal rule; ``f`` maps complex (points,) to (points,
    outputs).

    >>> import numpy as np
    >>> from samefn.equivariance.identifiable import first_pole, residue
    >>> f = lambda t: 5 * np.tanh(2 * t)[:, None]
    >>> f"{residue(f, first_pole(2.0, 0.0), radius=0.1)[0].real:.4f}"  # weight / slope
    '2.5000'
    """
    step = radius * np.exp(2j * np.pi * np.arange(points) / points)
    return (f(pole + step) * step[:, None]).mean(0)


def read_units(t: np.ndarray, values: np.ndarray, count: Count) -> np.ndarray:
    """Slope ω > 0, offset ψ and outgoing weight a of ``count`` units of b_out + Σ a tanh(ωt + ψ), steepest
    first, from real values.

    The poles of a rational approximation (AAA) that are nearest to the real line are taken for the first
    poles of the units.  They are that in exact arithmetic if the slopes are within a factor of 3 of each
    other; how well they are approximated depends on how far apart they are, and on the points ``t``.

    >>> import numpy as np
    >>> from samefn.equivariance.identifiable import read_units
    >>> t = np.linspace(-4, 4, 400)
    >>> read_units(t, 3 * np.tanh(2 * t + 0.5), count=1).round(6).tolist()
    [[2.0, 0.5, 3.0]]
    """
    rational = AAA(t, values)
    poles = rational.poles()
    first = np.argsort(np.where(poles.imag > 0, poles.imag, np.inf))[:count]
    slope = np.pi / (2 * poles.imag[first])
    return np.stack([slope, -slope * poles.real[first], slope * rational.residues()[first].real], 1)


def read_network(f: Callable[[Tensor], Tensor], d: Count, units: Count) -> DeepMLP:
    """The tanh network d → units → 1 whose function is f, from the values of f on the d axes.

    On each axis :func:`read_units` finds the units; their biases, of different sizes and not 0, tell which
    is which.  Whether that went well is seen by comparing the result with f.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.identifiable import random_legible, read_network
    >>> from samefn.functions import gap
    >>> network = random_legible(2, generator=Draw(0))
    >>> gap(network, read_network(network, d=2, units=2), Draw(1).normal(100, 2)) < 1e-4
    True
    """
    t = 4 * np.cos(np.pi * (np.arange(300) + 0.5) / 300)
    axes = []
    for axis in torch.eye(d, dtype=torch.float64):
        values = f(torch.from_numpy(t)[:, None] * axis)[:, 0].numpy()
        found = read_units(t, values, units)
        found *= np.sign(found[:, 1:2])  # turned around so that its bias is positive
        axes.append(found[found[:, 1].argsort()])
    slopes, biases, weights = torch.from_numpy(np.stack(axes)).unbind(-1)
    bias, down = biases.mean(0), weights.mean(0)[None]
    out = f(torch.zeros(1, d, dtype=torch.float64))[0] - down @ bias.tanh()
    return DeepMLP([slopes.T, down], [bias, out])


def exact_tanh(slope: int, scale: Fraction, y: Count) -> Fraction:
    """tanh(slope·t + log(scale)/2) where y = e^{2t} is an integer: a rational number.

    >>> from fractions import Fraction
    >>> from samefn.equivariance.identifiable import exact_tanh
    >>> exact_tanh(slope=1, scale=Fraction(1), y=3)  # (y - 1) / (y + 1)
    Fraction(1, 2)
    """
    power = scale * Fraction(y) ** slope
    return (power - 1) / (power + 1)


def value_matrix(slopes: Sequence[Count], scales: Sequence[Fraction]) -> DomainMatrix:
    """Exact values of 1 and of tanh(slope·t + log(scale)/2), a row for each of as many t as decide
    independence; slopes are positive.

    With y = e^{2t} a combination of the columns is a rational function of y whose numerator has degree at
    most the sum of the slopes, so it is zero if it is zero at one point more: the rank is the dimension of
    the span of the functions.

    >>> from fractions import Fraction
    >>> from samefn.equivariance.identifiable import value_matrix
    >>> value_matrix([1, 2], [Fraction(1), Fraction(1)]).rank()  # 1 and two units: independent
    3
    """
    if len(scales) != len(slopes):
        raise ValueError(f"scales must be one for each of {len(slopes)} slopes, got {len(scales)}")
    rows = []
    for y in range(1, sum(slopes) + 2):
        values = [exact_tanh(s, c, y) for s, c in zip(slopes, scales, strict=True)]
        rows.append([QQ(1), *(QQ(v.numerator, v.denominator) for v in values)])
    return DomainMatrix(rows, (len(rows), len(slopes) + 1), QQ)
