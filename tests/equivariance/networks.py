"""Networks that several tests of this wing start from, and an oracle: all signed permutations, one by one."""

import itertools

import torch
from hypothesis import assume
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.networks import DeepMLP

KINDS = [
    "tanh",
    "softsign",
    "gelu",
    "sigmoid",
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
    draw = Draw(seed)
    weights, biases = parameters(network)
    jitter = lambda t: t + size * draw.normal(*t.shape)
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


def least_error(a: DeepMLP, b: DeepMLP) -> float:
    """The smallest difference of weights over all products of signed permutations."""
    (wa, ba), (wb, bb) = parameters(a), parameters(b)
    size = [max(w.abs().max(), c.abs().max()) for w, c in zip(wb, bb)]
    best = float("inf")
    for choice in itertools.product(*(signed_permutations(n) for n in a.widths[:-1])):
        last = signed_permutations(a.widths[-1])
        left = [torch.eye(a.dim_in)[None], *(m[None] for m in choice), last, torch.eye(a.dim_out)[None]]
        worst = torch.zeros(1)
        for i, s in enumerate(size):
            worst = torch.maximum(worst, (left[i + 1] @ wa[i] @ left[i].mT - wb[i]).abs().amax((1, 2)) / s)
            worst = torch.maximum(worst, (left[i + 1] @ ba[i] - bb[i]).abs().amax(1) / s)
        best = min(best, float(worst.min()))
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
    # errors are relative to a layer's largest weight
    assume(all(w.any() or b.any() for w, b in zip(weights, biases)))
    return weights, biases
