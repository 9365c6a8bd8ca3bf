"""``latent_actions`` against known representations, and each of its refusals."""

import pytest
import torch

from samefn.equivariance import (
    NotEquivariant,
    NotIdentifiable,
    equivariance_error,
    latent_actions,
    symmetrise,
    transport,
)
from samefn.groups import (
    Representation,
    cyclic,
    dihedral,
    direct_sum,
    permutation_representation,
    representation,
    symmetric,
    trivial,
)
from samefn.networks import MLP, DeepMLP
from samefn.symmetry import random_symmetry, reduce

torch.set_default_dtype(torch.float64)

GROUPS = [*(cyclic(n) for n in range(2, 13)), dihedral(4), symmetric(4)]


def generator(seed):
    return torch.Generator().manual_seed(seed)


def signed(group, seed):
    """The permutation representation in a basis whose signs were changed at random."""
    rho = permutation_representation(group)
    sign = torch.randint(0, 2, (rho.dimension,), generator=generator(seed)) * 2.0 - 1
    return Representation(group, sign[:, None] * rho.matrices * sign)


def equivariant_network(group, depth, activation, seed):
    """Input and output are the permutation representation; hidden layers are one or two copies, and a trivial unit."""
    points = permutation_representation(group)
    hidden = signed if activation == "tanh" else lambda g, _: permutation_representation(g)
    blocks = [[hidden(group, seed + i)] * (2 - i % 2) + [trivial(group)] for i in range(depth)]
    reps = [points, *(direct_sum(*b) for b in blocks), points]
    sizes = [r.dimension for r in reps]
    g = generator(seed)
    weights = [torch.randn(m, n, generator=g) / n**0.5 * 2 for n, m in zip(sizes, sizes[1:])]
    biases = [torch.randn(m, generator=g) for m in sizes[1:]]
    return symmetrise(DeepMLP(weights, biases, activation), reps), reps


def assert_layers_equivariant(network, reps, tolerance=1e-10):
    for i, (before, after) in enumerate(zip(reps, reps[1:]), start=1):
        y = torch.randn(30, before.dimension, generator=generator(i))
        assert equivariance_error(lambda t: network.layer(i, t), before, after, y) < tolerance  # noqa: B023


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
@pytest.mark.parametrize(("depth", "activation"), [(1, "tanh"), (3, "tanh"), (2, "gelu"), (2, "relu")])
def test_known_representations_come_back(group, depth, activation):
    network, reps = equivariant_network(group, depth, activation, seed=len(group))
    assert_layers_equivariant(network, reps)
    scramble = random_symmetry(network, generator(7))
    scrambled = scramble.apply(network)
    found = latent_actions(scrambled, reps[0], reps[-1])
    assert len(found) == depth
    for rho, known, k in zip(found, reps[1:], scramble.matrices()):
        torch.testing.assert_close(rho.matrices, k @ known.matrices @ torch.linalg.inv(k), rtol=0, atol=1e-10)
    assert_layers_equivariant(scrambled, [reps[0], *found, reps[-1]])


@pytest.mark.parametrize("depth", range(1, 6))
def test_every_depth(depth):
    network, reps = equivariant_network(dihedral(4), depth, "tanh", seed=depth)
    scrambled = random_symmetry(network, generator(depth)).apply(network)
    found = latent_actions(scrambled, reps[0], reps[-1])
    assert_layers_equivariant(scrambled, [reps[0], *found, reps[-1]])
    for rho in found:
        assert torch.equal(rho.matrices.abs().sum(1), torch.ones(8, rho.dimension))  # signed permutations


def test_redundant_units_are_switched_off_and_kept_in_step():
    network, reps = equivariant_network(dihedral(4), 2, "tanh", seed=1)
    (w1, w2, w3), (b1, b2, b3) = ([p.detach() for p in ps] for ps in (network.weights, network.biases))
    w1, b1 = torch.cat([w1, -w1[:1], torch.ones(1, 4)]), torch.cat([b1, -b1[:1], torch.ones(1)])  # clone, inactive
    w2 = torch.cat([w2, -0.3 * w2[:, :1], torch.zeros(len(w2), 1)], 1)
    w2[:, 0] *= 0.7
    large = DeepMLP([w1, w2, w3], [b1, b2, b3])
    large = random_symmetry(large, generator(2)).apply(large)
    found = latent_actions(large, reps[0], reps[-1])
    embedded = reduce(large).embed()
    x = torch.randn(50, 4, generator=generator(3))
    torch.testing.assert_close(embedded(x), network(x))
    assert_layers_equivariant(embedded, [reps[0], *found, reps[-1]])
    with pytest.raises(AssertionError):  # the clones' weights are split unevenly, so the large network's own are not
        assert_layers_equivariant(large, [reps[0], *found, reps[-1]])


def test_the_action_is_the_inverse_of_the_alignment():
    """On a noncommutative group k_i(g) in place of k_i(g)⁻¹ would not even be a homomorphism."""
    network, reps = equivariant_network(symmetric(4), 1, "tanh", seed=2)
    (found,) = latent_actions(network, reps[0], reps[-1])
    g, h = symmetric(4).generators
    assert not torch.allclose(found(symmetric(4).product(g, h)), found(h) @ found(g))


def test_transport():
    network, reps = equivariant_network(dihedral(4), 2, "tanh", seed=3)
    a, b = torch.randn(4, 4, generator=generator(0)), torch.randn(4, 4, generator=generator(1))
    x = torch.randn(20, 4, generator=generator(2))
    torch.testing.assert_close(transport(network, a, b)(x), network(x @ torch.linalg.inv(a).T) @ b.T)


def test_no_hidden_layer_has_no_action():
    rho = permutation_representation(cyclic(3))
    network = symmetrise(DeepMLP([torch.randn(3, 3, generator=generator(0))]), [rho, rho])
    assert latent_actions(network, rho, rho) == []


def test_float32_networks():
    network, reps = equivariant_network(cyclic(4), 2, "tanh", seed=5)
    single = DeepMLP([w.detach().float() for w in network.weights], [b.detach().float() for b in network.biases])
    found = latent_actions(single, reps[0], reps[-1], tolerance=1e-4)
    for rho, known in zip(found, reps[1:]):
        torch.testing.assert_close(rho.matrices, known.matrices)
    x = torch.randn(9, 4, dtype=torch.float32)
    assert equivariance_error(single, reps[0], reps[-1], x) < 1e-4


# ---------------------------------------------------------------------------------------------
# Refusals


def test_not_equivariant_names_element_and_violation():
    network, reps = equivariant_network(dihedral(4), 2, "tanh", seed=4)
    weights = [w.detach().clone() for w in network.weights]
    weights[0][0, 0] += 0.1
    broken = DeepMLP(weights, [b.detach() for b in network.biases])
    with pytest.raises(NotEquivariant, match=r"at g = \(.*\) f\(gx\) and g f\(x\) differ by \d\.\de-\d\d") as caught:
        latent_actions(broken, reps[0], reps[-1])
    x = torch.randn(64, 4, generator=generator(0))
    error = equivariance_error(broken, reps[0], reps[-1], x)
    assert f"{error:.1e}" in str(caught.value)
    gaps = {g: (broken(x @ reps[0](g).T) - broken(x) @ reps[-1](g).T).norm(dim=1).max() for g in dihedral(4).elements}
    assert f"g = {max(gaps, key=gaps.get)} " in str(caught.value)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "softplus"])
def test_opposite_units_are_not_identifiable(activation):
    """σ(z) − σ(−z) = z: a linear map written with any basis A, equivariant end to end only."""
    c2 = cyclic(2)
    swap = representation(c2, {c2.generators[0]: torch.tensor([[0.0, 1.0], [1.0, 0.0]])})
    a = torch.randn(2, 2, generator=generator(1))
    inverse = torch.linalg.inv(a)
    network = DeepMLP([torch.cat([a, -a]), torch.cat([inverse, -inverse], 1)], activation=activation)
    with pytest.raises(NotIdentifiable, match=rf"g = \(0 1\), unit \d of layer 1 \({activation}\)"):
        latent_actions(network, swap, swap)


def test_the_unit_named_counts_in_the_whole_network():
    """An inactive first unit is removed, and must not shift the number that the message gives."""
    c2 = cyclic(2)
    swap = representation(c2, {c2.generators[0]: torch.tensor([[0.0, 1.0], [1.0, 0.0]])})
    a = torch.randn(2, 2, generator=generator(1))
    inverse = torch.linalg.inv(a)
    # unit 0 is inactive, the swap exchanges units 1 and 2, and the others are pairs that add up to x
    up = torch.cat([torch.ones(1, 2), torch.eye(2), 50 * a, -50 * a])
    down = torch.cat([torch.zeros(2, 1), torch.eye(2), inverse / 50, -inverse / 50], 1)
    network = DeepMLP([up, down], activation="gelu")
    with pytest.raises(NotIdentifiable, match=r"unit [3456] of layer 1"):
        latent_actions(network, swap, swap)


def test_representations_must_fit():
    network, reps = equivariant_network(cyclic(4), 1, "tanh", seed=6)
    with pytest.raises(ValueError, match="same group, got C4 and C2"):
        latent_actions(network, reps[0], permutation_representation(cyclic(2)))
    with pytest.raises(ValueError, match="x must have 5 columns"):
        latent_actions(network, direct_sum(reps[0], trivial(cyclic(4))), reps[-1])
    with pytest.raises(ValueError, match="rho_out must act on the 4 outputs of f, but has dimension 1"):
        latent_actions(network, reps[0], trivial(cyclic(4)))
    with pytest.raises(TypeError, match="rho_out must be a Representation, got Tensor"):
        latent_actions(network, reps[0], torch.eye(4))
    with pytest.raises(TypeError, match="network must be a DeepMLP, got MLP"):
        latent_actions(MLP(torch.ones(4, 4), torch.ones(4, 4)), reps[0], reps[0])
    with pytest.raises(ValueError, match=r"dimensions \[4, 9, 4\], got \[4, 4\]"):
        symmetrise(network, [reps[0], reps[0]])


def test_nan_is_not_equivariant():
    network, reps = equivariant_network(cyclic(2), 1, "relu", seed=7)
    huge = DeepMLP([w.detach() * 1e300 for w in network.weights], activation="relu")
    with pytest.raises(NotEquivariant):
        latent_actions(huge, reps[0], reps[-1])
