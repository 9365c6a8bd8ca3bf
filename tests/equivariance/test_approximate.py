"""Nearly equivariant networks: every measure against its formula, evaluated directly."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.approximate import (
    SIDE,
    end_to_end,
    first_layer,
    mirror_actions,
    nudged,
    planted_autoencoder,
    slope,
    smallest_singular_value,
    telescope,
    tilted,
    weight_misfit,
    with_faint_unit,
)
from samefn.equivariance.groups import cyclic
from samefn.networks import DeepMLP

from .networks import difference, random_network, signed_permutations


def mirror():
    """The left-right mirror of images, made of indices."""
    found = torch.zeros(SIDE**2, SIDE**2)
    for r in range(SIDE):
        for c in range(SIDE):
            found[SIDE * r + SIDE - 1 - c, SIDE * r + c] = 1
    return found


def tanh_network(layers, x):
    """The value of every layer, from the weights and torch.tanh alone."""
    values = [x]
    for i, (w, b) in enumerate(zip(layers.weights, layers.biases)):
        z = values[-1] @ w.T + b
        values.append(z if i == len(layers.weights) - 1 else torch.tanh(z))
    return values


def test_the_mirror_on_images_and_units():
    images, hidden = mirror_actions()
    assert images.group == hidden.group == cyclic(2)
    assert torch.equal(images.matrices[1], mirror())
    wanted = torch.zeros(8, 8)
    for i, j, value in (
        (0, 0, 1),
        (1, 1, 1),
        (2, 3, 1),
        (3, 2, 1),
        (4, 5, 1),
        (5, 4, 1),
        (6, 6, -1),
        (7, 7, -1),
    ):
        wanted[i, j] = value
    assert torch.equal(hidden.matrices[1], wanted)


@pytest.mark.parametrize("seed", range(5))
def test_planted_autoencoders_are_equivariant_by_q(seed):
    network, q = planted_autoencoder(generator=Draw(seed))
    g, x = mirror(), Draw(seed).normal(20, 9)
    assert (network.dim_in, *network.widths, network.dim_out) == (9, 8, 9)
    one, moved = (tanh_network(network.layers, t) for t in (x, x @ g.T))
    torch.testing.assert_close(moved[1], one[1] @ q.T, rtol=0, atol=1e-12)
    torch.testing.assert_close(moved[2], one[2] @ g.T, rtol=0, atol=1e-12)
    assert torch.equal(q.abs().sum(0), torch.ones(8)) and torch.equal(q @ q, torch.eye(8))
    assert max(end_to_end(network, g, x), first_layer(network, g, x), weight_misfit(network, g)) < 1e-11


@given(st.integers(0, 10**6))
def test_errors_are_root_mean_squares(seed):
    network, draw = random_network([3, 4, 3], "tanh", seed), Draw(seed)
    g, x = draw.normal(3, 3), draw.normal(12, 3)
    y = tanh_network(network.layers, x)
    after = tanh_network(network.layers, torch.stack([g @ row for row in x]))
    off = sum(float((b - g @ a).square().sum()) for a, b in zip(y[2], after[2]))
    assert end_to_end(network, g, x) == pytest.approx(math.sqrt(off / float(y[2].square().sum())))
    h, moved = y[1], after[1]
    best = torch.linalg.solve(h.T @ h, h.T @ moved)  # normal equations
    wanted = float((moved - h @ best).norm() / h.norm())
    assert first_layer(network, g, x) == pytest.approx(wanted, rel=1e-6)
    other = best + 0.01 * draw.normal(4, 4)
    assert first_layer(network, g, x) < float((moved - h @ other).norm() / h.norm())


@given(st.integers(0, 10**6), st.integers(1, 3))
def test_the_telescope_is_its_sum(seed, depth):
    """Σ_i (Π_{j>i} ‖W_j‖) δ_i, each row by itself, and it bounds the error."""
    draw, sizes = Draw(seed), (3, *[4] * (depth - 1), 2)
    network = random_network(sizes, "tanh", seed)
    A = [torch.eye(n) + 0.3 * draw.normal(n, n) for n in sizes]
    x = draw.normal(6, 3)
    error, bound = telescope(network, A, x)
    layers = network.layers
    norms = [float(torch.linalg.svdvals(w)[0]) for w in layers.weights]
    for row, e, b in zip(x, error.tolist(), bound.tolist()):
        values = [v[0] for v in tanh_network(layers, row[None])]
        moved = tanh_network(layers, (A[0] @ row)[None])[-1][0]
        assert e == pytest.approx(float((moved - A[-1] @ values[-1]).norm()))
        total = 0.0
        for i in range(1, depth + 1):
            z = layers.weights[i - 1] @ A[i - 1] @ values[i - 1] + layers.biases[i - 1]
            miss = (torch.tanh(z) if i < depth else z) - A[i] @ values[i]
            total += float(miss.norm()) * math.prod(norms[j - 1] for j in range(i + 1, depth + 1))
        assert b == pytest.approx(total) and e <= b * (1 + 1e-12)


def test_noise_is_on_every_weight():
    network = random_network([5, 40, 5])
    other, size = nudged(network, 0.1, generator=Draw()), 0.1
    for a, b in zip(other.parameters(), network.parameters(), strict=True):
        assert (a != b).all()
    gaps = torch.cat([(a - b).detach().flatten() for a, b in zip(other.parameters(), network.parameters())])
    assert float(gaps.square().mean().sqrt()) == pytest.approx(size, rel=0.15)
    assert other.activations == network.activations
    assert difference(network, nudged(network, 0.0, generator=Draw())) == 0


def test_tilted_rows_and_a_scaled_layer():
    network = random_network([9, 8, 9])
    other = tilted(network, 0.5, generator=Draw())
    noise = (other.weights[0] - network.weights[0]).detach() / 0.1
    torch.testing.assert_close(noise, Draw().normal(8, 9))
    assert torch.equal(other.biases[0], network.biases[0])
    torch.testing.assert_close(other.weights[1], 0.5 * network.weights[1])
    torch.testing.assert_close(other.biases[1], 0.5 * network.biases[1])


@pytest.mark.parametrize("outgoing", [1e-6, 0.3])
def test_a_faint_unit_writes_as_much_as_it_says(outgoing):
    network = random_network([9, 8, 9])
    other = with_faint_unit(network, outgoing, generator=Draw())
    assert other.widths == (9,)
    assert float(other.weights[1][:, 8].norm()) == pytest.approx(outgoing)
    assert torch.equal(other.weights[0][:8], network.weights[0])
    x = Draw(1).normal(5, 9)
    unit = torch.tanh(x @ other.weights[0][8] + other.biases[0][8])
    wanted = network(x) + unit[:, None] * other.weights[1][:, 8]
    torch.testing.assert_close(other(x), wanted)


@given(st.integers(0, 10**6))
def test_the_smallest_singular_value_is_that_of_finite_differences(seed):
    network, x = random_network([2, 2, 1], "tanh", seed), Draw(seed).normal(30, 2)
    layers = network.layers
    values = [*layers.weights, *layers.biases]
    columns = []
    for k, t in enumerate(values):
        for at in range(t.numel()):
            both = []
            for step in (1e-5, -1e-5):
                moved = [v.clone() for v in values]
                moved[k].view(-1)[at] += step
                both.append(DeepMLP(moved[:2], moved[2:])(x).detach().flatten())
            columns.append((both[0] - both[1]) / 2e-5)
    wanted = torch.linalg.svdvals(torch.stack(columns, 1) / 30**0.5)[-1]
    assert smallest_singular_value(network, x) == pytest.approx(float(wanted), abs=1e-8)


def test_an_invisible_direction_has_singular_value_zero():
    up, down = torch.tensor([[1.0, 2.0], [1.0, 2.0]]), torch.tensor([[1.0, 3.0]])
    clones = DeepMLP([up, down], [torch.zeros(2), torch.zeros(1)])
    assert smallest_singular_value(clones, Draw().normal(30, 2)) < 1e-14


@given(st.integers(0, 10**6), st.sampled_from([2, 4]))
def test_the_weight_misfit_near_a_symmetry_is_the_least_of_all(seed, order):
    """Nearly equivariant: distances for all signed permutations of four units, added up in plain loops."""
    draw, mirrored = Draw(seed), torch.tensor([[-1.0, 0], [0, 1]])
    g = mirrored if order == 2 else torch.tensor([[0.0, -1], [1, 0]])  # the mirror, or the quarter turn
    (u, a), bias = draw.normal(2, 2), draw.normal(1).repeat(4)
    powers = [torch.linalg.matrix_power(g, k) for k in range(4)]
    if order == 2:  # two pairs, not twice the same one
        powers[2:] = [2 * powers[0], 2 * powers[1]]
    up, down = torch.stack([p @ u for p in powers]), torch.stack([p @ a for p in powers], 1)
    exact = DeepMLP([up, down], [bias, torch.zeros(2)])
    assert weight_misfit(exact, g) < 1e-12
    network = nudged(exact, 1e-4, generator=draw)
    (w1, w2), (b1, b2) = network.layers.weights, network.layers.biases
    moved = [w1 @ torch.linalg.inv(g), b1, g @ w2, g @ b2]
    distances = []
    for k in signed_permutations(4):
        here = [k @ w1, k @ b1, w2 @ k.T, b2]
        distances.append(math.sqrt(sum(float((a - b).square().sum()) for a, b in zip(here, moved))))
    assert weight_misfit(network, g) == pytest.approx(min(distances))


def test_slopes_are_those_of_logarithms():
    assert slope((1.0, 2.0), (10.0, 200.0)) == pytest.approx(2)
    assert slope((1e-3, 5.0), (1e-1, 5.0)) == 0
    assert slope((1.0, 1.0), (math.e, math.e**-0.5)) == pytest.approx(-0.5)
