"""``latent_actions`` against known representations, and each of its refusals."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.alignment import Symmetry, random_symmetry
from samefn.equivariance.groups import (
    Representation,
    cycles,
    cyclic,
    dihedral,
    permutation_representation,
    representation,
    symmetric,
    trivial,
)
from samefn.equivariance.layerwise import (
    NotEquivariant,
    NotIdentifiable,
    equivariance_error,
    hidden_values,
    latent_actions,
    layer_errors,
    least_squares_action,
    require_one_group,
    symmetrise,
    transport,
    worst_violation,
)
from samefn.equivariance.redundancy import reduce
from samefn.networks import MLP, DeepMLP

from .networks import noisy, random_network

GROUPS = [*(cyclic(n) for n in range(2, 13)), dihedral(4), symmetric(4)]


def signed(group, seed):
    """The permutation representation in a basis whose signs were changed at random."""
    rho = permutation_representation(group)
    sign = Draw(seed).signs(rho.dimension)
    return Representation(group, sign[:, None] * rho.matrices * sign)


def equivariant_network(group, depth, activation, seed):
    """Input and output are the permuted points; hidden layers are one or two copies, and a trivial unit."""
    points = permutation_representation(group)
    hidden = signed if activation == "tanh" else lambda g, _: permutation_representation(g)
    inner = [(2 - i % 2) * hidden(group, seed + i) + trivial(group) for i in range(depth)]
    reps = [points, *inner, points]
    sizes = [r.dimension for r in reps]
    draw = Draw(seed)
    weights = [draw.normal(m, n) / n**0.5 * 2 for n, m in pairwise(sizes)]
    biases = [draw.normal(m) for m in sizes[1:]]
    return symmetrise(DeepMLP(weights, biases, activation), reps), reps


def assert_layers_equivariant(network, reps, tolerance=1e-10):
    for i, (before, after) in enumerate(pairwise(reps), start=1):
        y = Draw(i).normal(30, before.dimension)
        assert equivariance_error(lambda t, i=i: network.layer(i, t), before, after, y) < tolerance


@pytest.mark.parametrize("group", GROUPS, ids=lambda g: g.name)
@pytest.mark.parametrize(("depth", "activation"), [(1, "tanh"), (3, "tanh"), (2, "gelu"), (2, "relu")])
def test_known_representations_come_back(group, depth, activation):
    network, reps = equivariant_network(group, depth, activation, seed=len(group))
    assert_layers_equivariant(network, reps)
    scramble = random_symmetry(network, generator=Draw(7))
    scrambled = scramble.apply(network)
    found = latent_actions(scrambled, reps[0], reps[-1])
    assert len(found) == depth
    for rho, known, k in zip(found, reps[1:], scramble.matrices()):
        torch.testing.assert_close(rho.matrices, k @ known.matrices @ torch.linalg.inv(k), rtol=0, atol=1e-10)
    assert_layers_equivariant(scrambled, [reps[0], *found, reps[-1]])


@pytest.mark.parametrize("depth", range(1, 6))
def test_every_depth(depth):
    network, reps = equivariant_network(dihedral(4), depth, "tanh", seed=depth)
    scrambled = random_symmetry(network, generator=Draw(depth)).apply(network)
    found = latent_actions(scrambled, reps[0], reps[-1])
    assert_layers_equivariant(scrambled, [reps[0], *found, reps[-1]])
    for rho in found:
        assert torch.equal(rho.matrices.abs().sum(1), torch.ones(8, rho.dimension))  # signed permutations


def test_redundant_units_are_switched_off_and_kept_in_step():
    network, reps = equivariant_network(dihedral(4), 2, "tanh", seed=1)
    (w1, w2, w3), (b1, b2, b3) = ([p.detach() for p in ps] for ps in (network.weights, network.biases))
    w1, b1 = (
        torch.cat([w1, -w1[:1], torch.ones(1, 4)]),
        torch.cat([b1, -b1[:1], torch.ones(1)]),
    )  # clone, inactive
    w2 = torch.cat([w2, -0.3 * w2[:, :1], torch.zeros(len(w2), 1)], 1)
    w2[:, 0] *= 0.7
    large = DeepMLP([w1, w2, w3], [b1, b2, b3])
    large = random_symmetry(large, generator=Draw(2)).apply(large)
    found = latent_actions(large, reps[0], reps[-1])
    embedded = reduce(large).embed()
    x = Draw(3).normal(50, 4)
    torch.testing.assert_close(embedded(x), network(x))
    assert_layers_equivariant(embedded, [reps[0], *found, reps[-1]])
    with pytest.raises(
        AssertionError
    ):  # the clones' weights are split unevenly, so the large network's own are not
        assert_layers_equivariant(large, [reps[0], *found, reps[-1]])


def test_the_action_is_the_inverse_of_the_alignment():
    """On a noncommutative group k_i(g) in place of k_i(g)⁻¹ would not even be a homomorphism."""
    network, reps = equivariant_network(symmetric(4), 1, "tanh", seed=2)
    (found,) = latent_actions(network, reps[0], reps[-1])
    g, h = symmetric(4).generators
    assert not torch.allclose(found(symmetric(4).product(g, h)), found(h) @ found(g))


def test_transport():
    network, _ = equivariant_network(dihedral(4), 2, "tanh", seed=3)
    a, b = Draw(0).normal(4, 4), Draw(1).normal(4, 4)
    x = Draw(2).normal(20, 4)
    torch.testing.assert_close(transport(network, a, b)(x), network(x @ torch.linalg.inv(a).T) @ b.T)


def test_no_hidden_layer_has_no_action():
    rho = permutation_representation(cyclic(3))
    network = symmetrise(DeepMLP([Draw(0).normal(3, 3)]), [rho, rho])
    assert latent_actions(network, rho, rho) == []


def test_float32_networks():
    network, reps = equivariant_network(cyclic(4), 2, "tanh", seed=5)
    single = DeepMLP(
        [w.detach().float() for w in network.weights], [b.detach().float() for b in network.biases]
    )
    found = latent_actions(single, reps[0], reps[-1], tolerance=1e-4)
    for rho, known in zip(found, reps[1:]):
        torch.testing.assert_close(rho.matrices, known.matrices)
    x = Draw().normal(9, 4).float()
    assert equivariance_error(single, reps[0], reps[-1], x) < 1e-4


def rescaled_pairs(dtype):
    """C_2 swaps two inputs; ReLU pairs with factors 3 and 1/3, which float32 does not hold."""
    weights = [[[1, -1], [-3, 3]], [[1, -1 / 3], [-1, 1 / 3]], [[1, 1]]]
    return DeepMLP([torch.tensor(w, dtype=dtype) for w in weights], activation="relu")


def test_rounded_factors_compose():
    c2 = cyclic(2)
    for dtype in (torch.float64, torch.float32):
        for rho in latent_actions(rescaled_pairs(dtype), permutation_representation(c2), trivial(c2)):
            assert rho.violation()[0] <= 1e-15 and rho.error <= 1e-7


@given(st.integers(0, 10**6), st.sampled_from(["tanh", "relu", "sigmoid"]), st.sampled_from([4, 6]))
def test_tolerance_reaches_everything(seed, activation, size):
    """Noise of 1e-size in all weights, and weights of low precision, with a tolerance to match."""
    group = Draw(seed).choice([cyclic(2), cyclic(4), dihedral(4)])
    network, reps = equivariant_network(group, 2, activation, seed)
    scramble = random_symmetry(network, generator=Draw(seed))
    moved = scramble.apply(network)
    near = noisy(moved, 10.0**-size, seed)
    single = near.rebuilt(near.layers).float()
    for other in (near, single):
        try:
            found = latent_actions(other, reps[0], reps[-1], tolerance=10.0 ** (3 - size))
        except NotEquivariant:
            continue  # its function is further off than that
        for rho, known, k in zip(found, reps[1:], scramble.matrices()):
            wanted = k @ known.matrices @ torch.linalg.inv(k)
            torch.testing.assert_close(rho.matrices, wanted, rtol=10.0 ** (2 - size), atol=10.0 ** (2 - size))
            assert 0 < rho.error <= 10.0 ** (3 - size)


@given(st.integers(0, 10**6), st.sampled_from(["relu", "tanh", "gelu"]))
def test_a_float32_network_has_the_answer_of_its_float64_copy(seed, activation):
    network, reps = equivariant_network(dihedral(4), 2, activation, seed)
    single = random_symmetry(network, generator=Draw(seed)).apply(network).float()
    double = DeepMLP(single.layers.weights, single.layers.biases, activation)
    answers = []
    for one in (single, double):
        try:
            answers.append([rho.matrices for rho in latent_actions(one, reps[0], reps[-1])])
        except (NotEquivariant, NotIdentifiable) as refusal:
            answers.append(str(refusal))
    assert answers[0] == answers[1] if isinstance(answers[0], str) else all(map(torch.equal, *answers))


@pytest.mark.parametrize("kind", ["sigmoid", "relu6"])
@pytest.mark.parametrize("group", [cyclic(2), cyclic(4), symmetric(3)], ids=lambda g: g.name)
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_reflected_units_act_about_their_centre(kind, group, depth):
    """A sign of a permutation is a reflection y ↦ 2q − y: the action is affine, and composes."""
    points = permutation_representation(group)
    sign = Representation(group, torch.linalg.det(points.matrices).round()[:, None, None])
    hidden = points + sign
    reps = [points + sign, *[hidden + hidden] * depth, points + sign]
    draw = Draw(depth)
    sizes = [r.dimension for r in reps]
    network = DeepMLP(
        [draw.normal(m, n) for n, m in pairwise(sizes)], [draw.normal(m) for m in sizes[1:]], kind
    )
    network = symmetrise(network, reps)
    scramble = random_symmetry(network, generator=draw)
    scrambled = scramble.apply(network)
    x = draw.normal(9, sizes[0])
    assert equivariance_error(network, reps[0], reps[-1], x) < 1e-12
    found = latent_actions(scrambled, reps[0], reps[-1])
    q = {"sigmoid": 0.5, "relu6": 3.0}[kind]
    for rho, known, k in zip(found, reps[1:], scramble.matrices()):
        assert torch.equal(rho.matrices, k @ known.matrices @ k.T) and (rho.matrices < 0).any()
        assert rho.centre.tolist() == [q] * rho.dimension
        y = draw.normal(5, rho.dimension)
        for i, g in enumerate(group.elements):  # ρ(g) y = A y + s composes as an affine map
            for j, h in enumerate(group.elements):
                torch.testing.assert_close(
                    rho.move(i, rho.move(j, y)), rho.move(group.index(group.product(g, h)), y)
                )
    assert_layers_equivariant(scrambled, [reps[0], *found, reps[-1]])
    assert max(layer_errors(scrambled, [reps[0], *found, reps[-1]], generator=draw)) < 1e-12


def test_clones_that_are_reflected_move_in_step():
    """The action on a layer with reflected clones, through α and α* about the centre."""
    network, reps = equivariant_network(cyclic(4), 2, "sigmoid", seed=1)
    (w1, w2, w3), (b1, b2, b3) = network.layers.weights, network.layers.biases
    w1, b1 = torch.cat([w1, -w1[:1]]), torch.cat([b1, -b1[:1]])
    w2 = torch.cat([w2, -0.3 * w2[:, :1]], 1)
    b2 = b2 + 0.3 * w2[:, 0]
    w2[:, 0] *= 0.7
    large = DeepMLP([w1, w2, w3], [b1, b2, b3], "sigmoid")
    x = Draw(3).normal(50, 4)
    torch.testing.assert_close(large(x), network(x))
    found = latent_actions(large, reps[0], reps[-1])
    assert_layers_equivariant(reduce(large).embed(), [reps[0], *found, reps[-1]])


def test_rounding_left_by_averages_is_no_weight():
    """A unit that carries the sign of D_4's permutations finds nothing in the points: means leave 1e-17."""
    group = dihedral(4)
    points = permutation_representation(group)
    sign = Representation(group, torch.linalg.det(points.matrices).round()[:, None, None])
    reps, draw = [points, points + sign, points + sign, points], Draw(4)
    weights, biases = [], []
    for before, after in pairwise(reps):
        w, b = draw.normal(after.dimension, before.dimension), draw.normal(after.dimension)
        weights.append((after.matrices @ w @ torch.linalg.inv(before.matrices)).mean(0) + 1e-17)
        biases.append((after.matrices @ b).mean(0))
    network = random_symmetry(DeepMLP(weights, biases), generator=draw).apply(DeepMLP(weights, biases))
    assert 0 < network.layers.weights[0].norm(dim=1).min() < 1e-15
    found = latent_actions(network, reps[0], reps[-1])
    assert_layers_equivariant(network, [reps[0], *found, reps[-1]])


# ---------------------------------------------------------------------------------------------
# Refusals


def test_a_function_must_be_one():
    """Dropout in training mode is no function; NaN is not taken for it."""
    rho, x = permutation_representation(cyclic(3)), Draw().normal(9, 3)
    dropout = torch.nn.Dropout(0.5)
    with pytest.raises(ValueError, match=r"two calls with the same x differ by .*\(f\.eval\(\)"):
        equivariance_error(dropout, rho, rho, x)
    assert equivariance_error(dropout.eval(), rho, rho, x) == 0
    assert math.isnan(equivariance_error(lambda x: x * torch.nan, rho, rho, x))


def test_matches_that_do_not_compose_are_refused(monkeypatch):
    """As where units cannot be told apart: a documented refusal, not an error of the representation."""
    network, reps = equivariant_network(cyclic(3), 1, "tanh", seed=1)
    wrong = Symmetry((torch.tensor([1, 0, *range(2, 7)]),), (torch.ones(7),), network.activations)
    monkeypatch.setattr("samefn.equivariance.layerwise.align", lambda *_, **__: wrong)
    with pytest.raises(NotIdentifiable, match="in layer 1 the matches for the generators do not compose"):
        latent_actions(network, reps[0], reps[-1])


def test_not_equivariant_names_element_and_violation():
    network, reps = equivariant_network(dihedral(4), 2, "tanh", seed=4)
    weights = [w.detach().clone() for w in network.weights]
    weights[0][0, 0] += 0.1
    broken = DeepMLP(weights, [b.detach() for b in network.biases])
    with pytest.raises(
        NotEquivariant, match=r"at g = \(.*\) f\(gx\) and g f\(x\) differ by \d\.\de-\d\d"
    ) as caught:
        latent_actions(broken, reps[0], reps[-1])
    x = Draw(0).normal(64, 4)
    error = equivariance_error(broken, reps[0], reps[-1], x)
    assert f"{error:.1e}" in str(caught.value)
    gaps = {
        g: (broken(x @ reps[0](g).T) - broken(x) @ reps[-1](g).T).norm(dim=1).max()
        for g in dihedral(4).elements
    }
    assert f"g = {cycles(max(gaps, key=gaps.get))} " in str(caught.value)


@pytest.mark.parametrize("activation", ["relu", "gelu", "silu", "softplus"])
def test_opposite_units_are_not_identifiable(activation):
    """σ(z) − σ(−z) = z: a linear map written with any basis A, equivariant end to end only."""
    c2 = cyclic(2)
    swap = representation(c2, {c2.generators[0]: torch.tensor([[0.0, 1.0], [1.0, 0.0]])})
    a = Draw(1).normal(2, 2)
    inverse = torch.linalg.inv(a)
    network = DeepMLP([torch.cat([a, -a]), torch.cat([inverse, -inverse], 1)], activation=activation)
    with pytest.raises(NotIdentifiable, match=rf"g = \(0 1\), unit \d of layer 1 \({activation}\)"):
        latent_actions(network, swap, swap)


def test_the_unit_named_counts_in_the_whole_network():
    """An inactive first unit is removed, and must not shift the number that the message gives."""
    c2 = cyclic(2)
    swap = representation(c2, {c2.generators[0]: torch.tensor([[0.0, 1.0], [1.0, 0.0]])})
    a = Draw(1).normal(2, 2)
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
        latent_actions(network, reps[0] + trivial(cyclic(4)), reps[-1])
    with pytest.raises(ValueError, match="rho_out must act on the 4 outputs of f, but has dimension 1"):
        latent_actions(network, reps[0], trivial(cyclic(4)))
    with pytest.raises(ValueError, match=r"dimensions \[4, 9, 4\], got \[4, 4\]"):
        symmetrise(network, [reps[0], reps[0]])


def test_other_types_are_refused():
    network, reps = equivariant_network(cyclic(4), 1, "tanh", seed=6)
    with pytest.raises(TypeError, match=r"rho_out must be a Representation, got a torch.float"):
        latent_actions(network, reps[0], torch.eye(4))
    with pytest.raises(TypeError, match="rho_in must be a Representation, got 'C4'"):
        require_one_group("C4", reps[0])
    with pytest.raises(TypeError, match="network must be a DeepMLP, got MLP"):
        latent_actions(MLP(torch.ones(4, 4), torch.ones(4, 4)), reps[0], reps[0])


def test_nan_is_not_equivariant():
    network, reps = equivariant_network(cyclic(2), 1, "relu", seed=7)
    huge = DeepMLP([w.detach() * 1e300 for w in network.weights], activation="relu")
    with pytest.raises(NotEquivariant):
        latent_actions(huge, reps[0], reps[-1])


# ---------------------------------------------------------------------------------------------
# Errors of functions and of layers, against plain loops


def plain_violations(f, rho_in, rho_out, x):
    """For each g the largest ‖f(gx) − g f(x)‖, row by row, relative to the largest ‖f(x)‖ of all."""
    size = max(float(f(row[None])[0].norm()) for row in x)
    found = []
    for g in rho_in.group.elements:
        gaps = [f((rho_in(g) @ row)[None])[0] - rho_out(g) @ f(row[None])[0] for row in x]
        found.append(max(float(gap.norm()) for gap in gaps) / size)
    return found


@given(st.integers(0, 10**6), st.sampled_from([cyclic(3), dihedral(4), symmetric(3)]))
def test_errors_are_those_of_plain_loops(seed, group):
    rho = permutation_representation(group)
    n, draw = rho.dimension, Draw(seed)
    network, x = random_network([n, 5, n], "tanh", seed), draw.normal(7, n)
    rho_out = rho if draw.integer(0, 2) else trivial(group, n)
    wanted = plain_violations(network, rho, rho_out, x)
    error, where = worst_violation(network, rho, rho_out, x)
    assert error == pytest.approx(max(wanted)) == equivariance_error(network, rho, rho_out, x)
    assert wanted[group.index(where)] == pytest.approx(error)
    assert equivariance_error(network, rho, rho_out, x[:6].view(2, 3, n)) == pytest.approx(
        equivariance_error(network, rho, rho_out, x[:6])
    )


def test_the_error_of_the_zero_function():
    rho = permutation_representation(cyclic(3))
    assert equivariance_error(torch.zeros_like, rho, rho, Draw().normal(4, 3)) == 0


@pytest.mark.parametrize("which", [0, 1, 2])
def test_layer_errors_tell_the_layer(which):
    """One weight of one layer moved: that layer misses, by as much as plain loops say, and no other."""
    network, reps = equivariant_network(dihedral(4), 2, "tanh", seed=3)
    layers = network.layers
    weight = layers.weights[which].clone()
    weight[0, 1] += 0.1
    broken = network.rebuilt(layers.replaced(which, weight))
    errors = layer_errors(broken, reps, generator=Draw(5), count=30)
    draw = Draw(5)
    for i, (before, after) in enumerate(pairwise(reps)):
        y = draw.normal(30, before.dimension)
        wanted = max(plain_violations(lambda y, i=i: broken.layer(i + 1, y).detach(), before, after, y))
        assert errors[i] == pytest.approx(wanted, abs=1e-14)
        assert (errors[i] > 1e-3) is (i == which)


def test_hidden_values_are_those_of_the_formula():
    network, x = random_network([3, 4, 5, 2], "gelu"), Draw(1).normal(6, 3)
    (w1, w2, w3), (b1, b2, b3) = network.weights, network.biases
    gelu = lambda z: z * (1 + torch.erf(z / math.sqrt(2))) / 2
    first = gelu(x @ w1.T + b1)
    second = gelu(first @ w2.T + b2)
    for found, wanted in zip(hidden_values(network, x), (first, second, second @ w3.T + b3), strict=True):
        torch.testing.assert_close(found, wanted.detach())
        assert not found.requires_grad


@given(
    st.integers(0, 10**6),
    st.integers(2, 5),
    st.sampled_from(["all different", "dead", "clones", "few samples"]),
)
def test_least_squares_action_solves_the_normal_equations(seed, n, what):
    draw = Draw(seed)
    values, planted = draw.normal(n - 1 if what == "few samples" else 12, n), draw.normal(n, n)
    unit, other = draw.permutation(n)[:2].tolist()
    if what == "dead":
        values[:, unit] = 0
    elif what == "clones":
        values[:, unit] = -values[:, other]
    moved = draw.normal(*values.shape)
    residual = moved - values @ least_squares_action(values, moved).T
    torch.testing.assert_close(values.T @ residual, torch.zeros(n, n), rtol=0, atol=1e-11)
    exact = least_squares_action(values, values @ planted.T)
    torch.testing.assert_close(values @ exact.T, values @ planted.T, rtol=0, atol=1e-11)
    if what == "all different":
        torch.testing.assert_close(exact, planted, rtol=0, atol=1e-9)
    smallest = (torch.linalg.pinv(values) @ values @ planted.T).T
    torch.testing.assert_close(exact, smallest, rtol=0, atol=1e-9)


@given(st.integers(0, 10**6), st.sampled_from([cyclic(3), dihedral(4), symmetric(3)]))
def test_symmetrise_is_the_average_of_plain_loops(seed, group):
    rho = permutation_representation(group)
    reps = [rho, rho + trivial(group), trivial(group, 2)]
    network = random_network([r.dimension for r in reps], "tanh", seed)
    averaged = symmetrise(network, reps)
    for i, (before, after) in enumerate(pairwise(reps)):
        weight, bias = 0, 0
        for g in group.elements:
            weight = weight + after(g) @ network.weights[i] @ before(group.inverse(g)) / len(group)
            bias = bias + after(g) @ network.biases[i] / len(group)
        torch.testing.assert_close(averaged.weights[i], weight.detach())
        torch.testing.assert_close(averaged.biases[i], bias.detach())
    for again, once in zip(symmetrise(averaged, reps).weights, averaged.weights):
        torch.testing.assert_close(again, once)
