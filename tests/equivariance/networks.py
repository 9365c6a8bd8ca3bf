"""Networks that several tests of this wing start from, and an oracle: all signed permutations, one by one."""

import itertools
import math

import torch
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.networks import DeepMLP

KINDS = [
    "tanh",
    "softsign",
    "gelu",
    "sigmoid",
    "relu6",
    "relu",
    "relu_squared",
    activations.leaky_relu(0.2),
    activations.leaky_relu(-1),
    activations.monomial(2),
    activations.monomial(3),
]


def name(kind) -> str:
    return getattr(kind, "name", kind)


def random_network(sizes, activation="tanh", seed=0, biases=True) -> DeepMLP:
    draw = Draw(seed)
    weights = [draw.normal(m, n) / n**0.5 for n, m in itertools.pairwise(sizes)]
    return DeepMLP(weights, [draw.normal(m) for m in sizes[1:]] if biases else None, activation)


def parameters(network: DeepMLP):
    """Copies of the weights, and of the biases or None."""
    weights = [w.detach().clone() for w in network.weights]
    biases = [b.detach().clone() for b in network.biases] if network.biases is not None else None
    return weights, biases


def noisy(network: DeepMLP, size: float, seed=0) -> DeepMLP:
    """Every weight and bias off by a random part of itself."""
    draw = Draw(seed)
    weights, biases = parameters(network)
    jitter = lambda t: t * (1 + size * draw.normal(*t.shape))
    return DeepMLP([jitter(w) for w in weights], biases and [jitter(b) for b in biases], network.activations)


def difference(a, b, seed=0) -> float:
    """The largest difference of two networks on 100 points, relative to the largest value."""
    x = Draw(seed).normal(100, a.dim_in)
    return float((a(x) - b(x)).detach().abs().max() / a(x).detach().abs().max().clamp_min(1e-300))


def signed_permutations(width: int) -> torch.Tensor:
    """All 2^n n! of them, as matrices."""
    orders = torch.eye(width)[torch.tensor(list(itertools.permutations(range(width))))]
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=width)))
    return (signs[:, None, :, None] * orders[None]).reshape(-1, width, width)


def mismatch(a: DeepMLP, b: DeepMLP) -> float:
    """The definition of ``align``'s error, in plain loops over single weights."""
    read, worst = [1.0] * b.dim_in, 0.0  # how large what is read is: None if it is always 0
    for i, (w, v) in enumerate(zip(b.layers.weights, a.layers.weights)):
        bias, other = b.layers.biases[i].tolist(), a.layers.biases[i].tolist()
        rows = [[x * (1 if r is None else r) for x, r in zip(row, read)] for row in w.tolist()]
        off = [
            [abs(x - y) * (1 if r is None else r) for x, y, r in zip(*three, read)]
            for three in zip(w.tolist(), v.tolist())
        ]
        norms = [
            math.hypot(*(x for x, r in zip(row, read) if r is not None)) or math.hypot(*row) for row in rows
        ]
        part = lambda x, y: 0.0 if x == 0 else x / y if y else math.inf
        for k, r in enumerate(read):
            column = math.hypot(*(part(abs(row[k]), n) for row, n in zip(rows, norms)))
            column = column if r is None else min(column, 1.0)
            worst = max(worst, *(part(gap[k], n * column) for gap, n in zip(off, norms)))
        worst = max(worst, *(part(abs(x - y), n or abs(x)) for x, y, n in zip(bias, other, norms)))
        if i < len(b.activations):
            f = b.activations[i]
            whole = [
                math.hypot(*(x for x, r in zip(row, read) if r is not None), c - f.centre[0])
                for row, c in zip(rows, bias)
            ]
            free, known = f.degree is not None, f.symmetry == "permutation" and f.odd_slope != 0
            read = [(n**f.degree if free else 1.0) if n else (1.0 if known else None) for n in whole]
    return worst


def least_error(a: DeepMLP, b: DeepMLP) -> float:
    """The smallest :func:`mismatch` over all products of signed permutations, for tanh."""
    best = math.inf
    for ks in itertools.product(*(signed_permutations(n) for n in a.widths)):
        ks = [torch.eye(a.dim_in), *ks, torch.eye(a.dim_out)]
        weights = [after @ w @ before.T for w, before, after in zip(a.layers.weights, ks, ks[1:])]
        biases = [k @ c for k, c in zip(ks[1:], a.layers.biases)]
        best = min(best, mismatch(DeepMLP(weights, biases, "tanh"), b))
    return best


@st.composite
def awkward_weights(draw, shapes=((1, 3, 1), (2, 4, 1), (2, 3, 2, 1))):
    """Weights and biases in {-1, 0, 1}: full of clones, opposites, constant and inactive units."""
    sizes = draw(st.sampled_from(shapes))
    entry = st.integers(-1, 1).map(float)
    matrix = lambda *shape: torch.tensor(
        draw(st.lists(entry, min_size=torch.Size(shape).numel(), max_size=torch.Size(shape).numel()))
    ).reshape(shape)
    weights = [matrix(m, n) for n, m in itertools.pairwise(sizes)]
    biases = [matrix(m) for m in sizes[1:]]
    return weights, biases
