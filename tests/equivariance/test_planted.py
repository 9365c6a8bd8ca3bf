"""Planted networks are what they are said to be: the same function, the same group, nothing more."""

import itertools
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.equivariance.alignment import align, random_symmetry
from samefn.equivariance.groups import cyclic, dihedral, symmetric
from samefn.equivariance.layerwise import latent_actions
from samefn.equivariance.planted import (
    as_sigmoid,
    clone_factor,
    equivariant_network,
    groups,
    hidden_tanh_network,
    opposite_pairs,
    plane,
    points_and_signed_points,
    random_deep,
    with_spare_units,
)
from samefn.equivariance.redundancy import reduce

from .networks import KINDS, difference, name, random_network

ALL = [*activations.CATALOGUE.values(), *(kind for kind in KINDS if not isinstance(kind, str))]
SPARE = ("clone", "inactive", "constant")


def assert_commutes(f, before, after, x, tolerance=1e-11):
    """f(gx) = g f(x) for every g, row by row."""
    size = float(f(x).abs().max())
    for g in before.group.elements:
        moved = torch.stack([after(g) @ y for y in f(x)])
        assert float((f(torch.stack([before(g) @ row for row in x])) - moved).abs().max()) < tolerance * size


@given(st.sampled_from(ALL), st.lists(st.sampled_from(SPARE), max_size=4), st.integers(0, 10**6))
def test_spare_units_keep_the_function(f, kinds, seed):
    small = random_network([2, 3, 2, 2], f, seed)
    large = with_spare_units(small, kinds, generator=Draw(seed))
    assert large.widths == (3 + len(kinds), 2 + len(kinds))
    assert difference(small, large) < 1e-9  # monomials of monomials are large beside their difference


@pytest.mark.parametrize("kind", SPARE)
@pytest.mark.parametrize("f", KINDS, ids=name)
def test_a_spare_unit_is_of_its_kind(kind, f):
    small = random_network([2, 3, 4, 2], f)
    large = with_spare_units(small, [kind], layers={2}, generator=Draw(1))
    assert large.widths == (3, 5)
    row = torch.cat([large.weights[1][4], large.biases[1][4:]])
    column, before = large.weights[2][:, 4], small.weights[2]
    assert torch.equal(large.weights[1][:4], small.weights[1]) and torch.equal(
        large.weights[0], small.weights[0]
    )
    if kind == "inactive":
        assert not column.any() and row.all()
    elif kind == "constant":
        assert not row[:-1].any() and row[-1] and column.all()
    else:
        x = Draw(2).normal(30, 2)
        values = large.layer(2, large.layer(1, x))
        torch.testing.assert_close(values[:, 4], clone_factor(large.activations[1]) * values[:, 0])
        assert not torch.allclose(large.weights[2][:, 0], before[:, 0]) and column.all()
    kept = large.weights[2][:, 1:4] if kind == "clone" else large.weights[2][:, :4]
    assert torch.equal(kept, before[:, 1:] if kind == "clone" else before)


@given(st.sampled_from(ALL), st.integers(0, 10**6))
def test_clone_factors_pass_through_the_activation(f, seed):
    z = Draw(seed).normal(50)
    torch.testing.assert_close(f(clone_factor(f) * z), clone_factor(f) * f(z), rtol=1e-10, atol=1e-12)


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
def test_reduce_finds_what_spare_units_were_added_to(f, seed):
    small = random_network([2, 4, 3, 2], f, seed)
    large = with_spare_units(small, generator=Draw(seed))
    moved = random_symmetry(large, generator=Draw(seed)).apply(large)
    found = reduce(moved)
    assert found.network.widths == (4, 3) and len(found.removed) == 6
    assert align(found.network, small, tolerance=1e-7) is not None
    for alpha, star in zip(found.include, found.project):
        torch.testing.assert_close(star @ alpha, torch.eye(alpha.shape[1]), rtol=0, atol=1e-12)


def test_spare_units_refuse():
    network = random_network([2, 3, 2, 2])
    for layers in ([0], {3}, (1, 4)):
        with pytest.raises(ValueError, match=r"layers must lie in 1\.\.2, got \("):
            with_spare_units(network, layers=layers, generator=Draw())


def test_there_are_no_other_kinds_of_spare_units():
    with pytest.raises(
        ValueError, match=r"kinds\[1\] must be one of 'clone', 'inactive', 'constant', got 'twin'"
    ):
        with_spare_units(random_network([2, 3, 2]), ["clone", "twin"], generator=Draw())


def test_random_deep_has_the_sizes_and_the_variances():
    network = random_deep("gelu", (400, 300, 200, 2), generator=Draw())
    assert (network.dim_in, *network.widths, network.dim_out) == (400, 300, 200, 2)
    assert [f.name for f in network.activations] == ["gelu", "gelu"]
    for w in network.weights[:2]:
        assert float(w.square().mean() * w.shape[1]) == pytest.approx(1, abs=0.02)
    assert float(network.biases[0].square().mean()) == pytest.approx(1, abs=0.3)


def test_the_groups():
    assert [len(g) for g in groups()] == [*range(2, 13), 8, 24]


def signature(p):
    return (-1) ** sum(a > b for a, b in itertools.combinations(p, 2))


@pytest.mark.parametrize("group", [cyclic(4), dihedral(4), symmetric(3)], ids=lambda g: g.name)
def test_points_and_signed_points(group):
    rho, n = points_and_signed_points(group), len(group.elements[0])
    for p in group.elements:
        e = torch.eye(2 * n)
        for i in range(n):
            assert torch.equal(rho(p) @ e[i], e[p[i]])
            assert torch.equal(rho(p) @ e[n + i], signature(p) * e[n + p[i]])


@pytest.mark.parametrize("group", groups(), ids=lambda g: g.name)
@pytest.mark.parametrize("depth", [1, 3])
def test_equivariant_networks_are_equivariant_layer_by_layer(group, depth):
    network, reps = equivariant_network(group, depth, generator=Draw(depth))
    assert len(network.widths) == depth and len(reps) == depth + 2
    for i, (before, after) in enumerate(pairwise(reps), 1):
        x = Draw(i).normal(5, before.dimension)
        assert_commutes(lambda y, i=i: network.layer(i, y).detach(), before, after, x)
    values = network.layer(1, Draw().normal(5, reps[0].dimension))
    assert float((values - values.mean(0)).abs().max()) > 0.01  # the average did not take everything away


@pytest.mark.parametrize("group", [cyclic(4), dihedral(4)], ids=lambda g: g.name)
def test_the_plane_and_its_hidden_network(group):
    rho, x = plane(group), Draw().normal(6, 2)
    turn = rho(group.generators[0])
    assert turn.tolist() == [[0, -1], [1, 0]]
    if len(group.generators) == 2:
        assert rho(group.generators[1]).tolist() == [[-1, 0], [0, 1]]
    network = hidden_tanh_network(group, generator=Draw(1))
    assert (network.dim_in, *network.widths, network.dim_out) == (2, 6, 6, 2)
    assert_commutes(lambda y: network(y).detach(), rho, rho, x)
    actions = [rho, *latent_actions(network, rho, rho), rho]
    for i, (before, after) in enumerate(pairwise(actions), 1):
        y = Draw(i).normal(5, before.dimension)
        assert_commutes(lambda y, i=i: network.layer(i, y).detach(), before, after, y)


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.integers(0, 10**6))
def test_sigmoid_networks_have_the_function_and_the_hidden_values_of_tanh(sizes, seed):
    network, y = random_network(sizes, "tanh", seed), Draw(seed).normal(9, sizes[0])
    other = as_sigmoid(network)
    assert all(f.name == "sigmoid" for f in other.activations)
    assert difference(network, other) < 1e-12
    z = y
    for i in range(1, len(sizes) - 1):
        y, z = network.layer(i, y), other.layer(i, z)
        torch.testing.assert_close(y, 2 * z - 1, rtol=0, atol=1e-12)


@given(st.sampled_from(["relu", "gelu", "silu", "softplus"]), st.integers(0, 10**6))
def test_opposite_pairs_compute_x(kind, seed):
    network, swap = opposite_pairs(kind, generator=Draw(seed))
    x = Draw(seed).normal(20, 2)
    torch.testing.assert_close(network(x).detach(), x, rtol=0, atol=1e-11)
    assert swap.matrices[1].tolist() == [[0, 1], [1, 0]]
    up = network.weights[0].detach()
    assert network.widths == (4,) and torch.equal(up[:2], -up[2:])
    up = torch.nn.functional.normalize(up, dim=1)
    apart = torch.stack([up @ row.flip(0) for row in up])  # cosines between mirror images and rows
    assert float(apart.max()) < 0.97 and abs(float(torch.linalg.det(up[:2]))) > 0.3
