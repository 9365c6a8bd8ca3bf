"""``align`` against brute force over all signed permutations and planted symmetries."""

import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.equivariance.alignment import (
    Symmetry,
    align,
    nearest_signed_permutation,
    nearest_symmetry,
    random_symmetry,
)
from samefn.networks import MLP, DeepMLP

from .networks import (
    KINDS,
    awkward_weights,
    difference,
    least_error,
    mismatch,
    name,
    noisy,
    parameters,
    random_network,
    signed_permutations,
)

# ---------------------------------------------------------------------------------------------
# Symmetries


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_symmetries_keep_the_function_and_align_finds_them(kind, biases):
    a = random_network([3, 6, 5, 2], kind, 1, biases)
    planted = random_symmetry(a, generator=Draw(2))
    b = planted.apply(a)
    assert difference(a, b) < 1e-12
    found = align(a, b)
    assert found is not None and found.error < 1e-12
    for p, q, f, h in zip(found.permutations, planted.permutations, found.factors, planted.factors):
        assert torch.equal(p, q)
        torch.testing.assert_close(f, h)


@pytest.mark.parametrize("kind", ["leaky_relu(-1)", "monomial(2)"])
def test_an_even_activation_does_not_see_the_sign_of_its_rows(kind):
    activation = activations.monomial(2) if kind == "monomial(2)" else activations.leaky_relu(-1)
    a = random_network([3, 5, 4, 2], activation, 1)
    (first, *weights), (bias, *biases) = a.layers.weights, a.layers.biases
    signs = torch.tensor([1.0, -1, -1, 1, -1])
    b = DeepMLP([signs[:, None] * first, *weights], [signs * bias, *biases], activation)
    assert difference(a, b) < 1e-12
    found = align(b, a)
    assert found is not None and found.error < 1e-12


def test_matrices_act_on_the_hidden_values():
    a = random_network([3, 5, 4, 2], "relu", 3)
    symmetry = random_symmetry(a, generator=Draw(4))
    b = symmetry.apply(a)
    x = Draw(5).normal(10, 3)
    for i, matrix in enumerate(symmetry.matrices()):
        y, z = a.layer(1, x), b.layer(1, x)
        if i == 1:
            y, z = a.layer(2, y), b.layer(2, z)
        torch.testing.assert_close(y @ matrix.T, z)


def test_apply_refuses_other_widths():
    a = random_network([3, 5, 2])
    with pytest.raises(ValueError, match=r"hidden widths \(5,\), got \(4,\)"):
        random_symmetry(a, generator=Draw(0)).apply(random_network([3, 4, 2]))


# ---------------------------------------------------------------------------------------------
# align


@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 4, 2), (3, 5, 1), (2, 2, 3, 2)])
@pytest.mark.parametrize("related", [True, False])
def test_align_agrees_with_all_signed_permutations(sizes, related):
    a = random_network(sizes, "tanh", seed=sum(sizes))
    moved = random_symmetry(a, generator=Draw(1)).apply(a)
    b = noisy(moved, 1e-9) if related else random_network(sizes, "tanh", 99)
    oracle, found = least_error(a, b), align(a, b)
    assert (found is not None) == (oracle <= 1e-6) == related
    if related:
        assert found.error == pytest.approx(oracle, rel=1e-6)


@given(awkward_weights(), st.integers(0, 1000))
def test_align_relates_awkward_networks(weights, seed):
    """Ties everywhere: which symmetry is found is not determined, but one layer deep one must be."""
    network = DeepMLP(*weights)
    moved = noisy(random_symmetry(network, generator=Draw(seed)).apply(network), 1e-10, seed)
    found = align(network, moved)
    if len(network.widths) == 1:
        assert found is not None
    assert found is None or found.error < 1e-8


@given(awkward_weights(), awkward_weights())
def test_align_never_relates_what_brute_force_does_not(one, two):
    a, b = DeepMLP(*one), DeepMLP(*two)
    if [w.shape for w in a.weights] == [w.shape for w in b.weights] and len(a.widths) == 1:
        assert (align(a, b) is not None) == (least_error(a, b) <= 1e-6)


@pytest.mark.parametrize("distance", [1e-4, 1e-6, 1e-8])
@pytest.mark.parametrize("kind", ["tanh", "gelu", "relu"])
@pytest.mark.parametrize("seed", range(5))
def test_align_tells_apart_units_that_nearly_coincide(kind, distance, seed):
    weights, biases = parameters(random_network([3, 6, 6, 2], kind, seed))
    for layer in (0, 1):
        weights[layer][1], biases[layer][1] = weights[layer][0], biases[layer][0]
        weights[layer][1, 0] += distance
        sign = -1 if kind == "tanh" else 1
        weights[layer][2], biases[layer][2] = sign * weights[layer][0], sign * biases[layer][0]
        weights[layer][2, 1] += distance
    a = DeepMLP(weights, biases, kind)
    planted = random_symmetry(a, generator=Draw(seed))
    b = noisy(planted.apply(a), 1e-10, seed)
    found = align(a, b)
    assert found is not None and found.error < 1e-8
    assert all(map(torch.equal, found.permutations, planted.permutations))


@pytest.mark.parametrize("kind", ["tanh", "gelu", "relu", activations.monomial(3)], ids=name)
@pytest.mark.parametrize("seed", range(5))
def test_align_survives_reordered_clones(kind, seed):
    """Three exact clones in the first layer, which only their outgoing weights tell apart."""
    weights, biases = parameters(random_network([3, 6, 5, 2], kind, seed))
    for clone in (2, 4):
        weights[0][clone], biases[0][clone] = weights[0][0], biases[0][0]
    a = DeepMLP(weights, biases, kind)
    planted = random_symmetry(a, generator=Draw(seed + 10))
    found = align(a, noisy(planted.apply(a), 1e-10, seed))
    assert found is not None and found.error < 1e-8
    assert all(map(torch.equal, found.permutations, planted.permutations))


def test_align_takes_one_sign_for_both_ends_of_a_unit():
    """Units (u, v) and (u, -v) cancel; matched by |u| and |v| separately they would be exchanged."""
    u, v = torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0], [3.0]])
    a = DeepMLP([torch.cat([u, u]), torch.cat([v, -v], 1)])
    b = DeepMLP([torch.cat([-u, u]), torch.cat([v, v], 1)])
    found = align(a, b)
    assert found is not None and found.error == 0


def test_error_is_what_the_weights_miss():
    a = random_network([3, 5, 2], "tanh", 1)
    b = random_symmetry(a, generator=Draw(1)).apply(a)
    weights, biases = parameters(b)
    weights[0][2, 1] += 1e-7
    size = weights[0][2].norm() * (weights[0][:, 1] / weights[0].norm(dim=1)).norm().clamp(max=1)
    assert align(a, DeepMLP(weights, biases)).error == pytest.approx(float(1e-7 / size), rel=1e-6)
    weights[0][2, 1] += 1e-3
    assert align(a, DeepMLP(weights, biases)) is None
    assert align(a, DeepMLP(weights, biases), tolerance=1e-2) is not None


def test_align_relates_scales_far_apart():
    a = random_network([3, 4, 2], "relu", 1)
    scale = torch.tensor([1e-9, 1e9, 1.0, 1e5])
    b = Symmetry((torch.tensor([2, 0, 3, 1]),), (scale,), a.activations).apply(a)
    assert torch.allclose(align(a, b).factors[0], scale, rtol=1e-12)


def test_align_without_hidden_layer():
    a = random_network([3, 2])
    assert align(a, a).permutations == ()
    assert align(a, random_network([3, 2], seed=5)) is None


def test_align_refuses_other_modules():
    a, other = random_network([3, 5, 2]), MLP(torch.ones(2, 3), torch.ones(3, 2))
    with pytest.raises(TypeError, match="b must be a DeepMLP, got MLP"):
        align(a, other)
    with pytest.raises(TypeError, match="a must be a DeepMLP, got MLP"):
        nearest_symmetry(other, a)


@pytest.mark.parametrize("search", [align, nearest_symmetry])
def test_align_refuses_other_architectures(search):
    a = random_network([3, 5, 2])
    with pytest.raises(ValueError, match="same shapes"):
        search(a, random_network([3, 4, 2]))
    with pytest.raises(ValueError, match="same activations"):
        search(a, random_network([3, 5, 2], "gelu"))


@given(st.integers(0, 10**6), st.sampled_from(KINDS), st.floats(-12, 0))
def test_align_is_the_nearest_symmetry_within_its_tolerance(seed, kind, size):
    a = random_network([2, 4, 3, 1], kind, seed)
    b = noisy(random_symmetry(a, generator=Draw(seed)).apply(a), 10**size, seed)
    nearest = nearest_symmetry(a, b)
    for p in nearest.permutations:
        assert sorted(p.tolist()) == list(range(len(p)))
    worst = mismatch(nearest.apply(a), b)
    assert nearest.error == pytest.approx(worst, rel=1e-12)
    for tolerance in (0.5 * worst, 2 * worst):
        found = align(a, b, tolerance=tolerance)
        assert (found is not None) is (tolerance > worst)
        if found is not None:
            assert found.error == nearest.error
            assert all(map(torch.equal, found.permutations, nearest.permutations))
            assert all(map(torch.equal, found.factors, nearest.factors))


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_random_symmetries_have_the_factors_that_the_activation_allows(kind):
    network = random_network([2, 300, 1], kind)
    symmetry = random_symmetry(network, generator=Draw())
    (permutation,), (factors,) = symmetry.permutations, symmetry.factors
    assert sorted(permutation.tolist()) == list(range(300)) != permutation.tolist()
    z = Draw(1).normal(50)
    f = network.activations[0]
    signs, sizes = set(factors.sign().tolist()), set(factors.abs().tolist())
    signed = "tanh", "softsign", "sigmoid", "relu6", "monomial(3)"
    assert (-1.0 in signs) is (name(kind) in signed)
    assert (len(sizes) > 1) is (f.degree is not None)
    p = 3.0 if kind == "relu6" else 0.0
    scaled = zip(symmetry.scales[0], factors, symmetry.shifts[0])
    for scale, factor, shift in itertools.islice(scaled, 20):  # σ(τ(z)) = f σ(z) + shift
        torch.testing.assert_close(f(p + scale * (z - p)), factor * f(z) + shift, rtol=1e-10, atol=1e-12)


def test_act_moves_the_layers_that_apply_rebuilds():
    network = random_network([3, 5, 4, 2], "relu", 3, biases=False)
    symmetry = random_symmetry(network, generator=Draw(4))
    layers, applied = symmetry.act(network.layers), symmetry.apply(network)
    assert applied.biases is None and applied.activations == layers.activations == network.activations
    for w, v in zip(layers.weights, applied.weights):
        assert torch.equal(w, v)
    single = DeepMLP([w.detach().float() for w in network.weights], activation="relu")
    assert symmetry.apply(single).weights[0].dtype == torch.float32


# ---------------------------------------------------------------------------------------------
# Nothing hides: scales, orders, precision, silent units, names


def test_a_symmetry_belongs_to_its_activations():
    relu, tanh = (random_network([2, 4, 1], kind, 1) for kind in ("relu", "tanh"))
    symmetry = random_symmetry(relu, generator=Draw(2))
    with pytest.raises(ValueError, match=r"network must have the activations \['relu'\], got \['tanh'\]"):
        symmetry.apply(tanh)
    assert symmetry.apply(random_network([2, 4, 1], activations.leaky_relu(0), 1)).widths == (4,)


def test_spellings_of_one_activation_are_aligned():
    a = random_network([2, 4, 3, 1], "leaky_relu", 1)
    b = DeepMLP(list(a.weights), list(a.biases), activations.leaky_relu(0.01))
    assert align(a, b).error == align(b, a).error == 0
    near = DeepMLP(list(a.weights), list(a.biases), activations.leaky_relu(0.0100000001))
    with pytest.raises(ValueError, match="same activations"):
        align(a, near)  # though it has the same name


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.floats(-12, 0), st.booleans())
def test_no_scale_hides_a_difference(kind, seed, size, silent):
    """One weight of a unit changes by its own size, the unit's row is tiny and its outgoing weights huge."""
    draw, c = Draw(seed), 10.0**size
    weights, biases = parameters(random_network([3, 5, 4, 2], kind, seed))
    layer = draw.integer(0, 2)
    unit = draw.integer(0, weights[layer].shape[0])
    for part in (weights[layer], biases[layer]):
        part[unit] *= c
    weights[layer + 1][:, unit] /= c
    if silent:  # a unit that is always 0 about the centre, with huge outgoing weights
        other = (unit + 1) % len(weights[layer])
        weights[layer][other], biases[layer][other] = 0, activations.get(kind).centre[0]
        weights[layer + 1][:, other] *= 1e9
    a = DeepMLP([w.clone() for w in weights], [b.clone() for b in biases], kind)
    hidden = lambda network: random_symmetry(network, generator=Draw(seed + 1)).apply(network)
    assert align(a, hidden(a)) is not None
    which = draw.integer(0, 3)
    if which == 0:
        weights[layer][unit, 0] *= -1
    elif which == 1:
        weights[layer + 1][0, unit] *= 2
    else:
        weights[layer][unit] = c * draw.normal(weights[layer].shape[1])
    assert align(a, hidden(DeepMLP(weights, biases, kind))) is None


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(-100, 100))
def test_powers_of_two_and_orders_of_units_change_nothing(kind, seed, power):
    """A scale that is allowed, times a power of two, is found; the error knows of no scale and no order."""
    a = random_network([2, 4, 3, 2], kind, seed)
    b = noisy(random_symmetry(a, generator=Draw(seed)).apply(a), 1e-9, seed)
    found, moved = align(a, b), random_symmetry(b, generator=Draw(seed + 1))
    scales = tuple(torch.where(s.abs() != 1, 2.0**power, 1.0) * s.sign() for s in moved.scales)
    if (
        any((s.abs() == 2.0**power).any() for s in scales)
        and abs(power) * (b.activations[0].degree or 1) > 300
    ):
        return  # overflow
    c = Symmetry(moved.permutations, scales, b.activations).apply(b)
    other = align(a, c)
    assert other is not None and other.error == pytest.approx(found.error, rel=1e-4, abs=1e-14)
    for p, q, u in zip(found.permutations, other.permutations, moved.permutations):
        assert torch.equal(p[u], q)
    for s, t, u, r in zip(found.scales, other.scales, moved.permutations, scales):
        torch.testing.assert_close(t, s[u] * r, rtol=1e-7, atol=0)


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.sampled_from([torch.float32, torch.float16]))
def test_low_precision_has_the_verdict_of_its_float64_copy(kind, seed, dtype):
    a = random_network([2, 4, 3, 2], kind, seed)
    b = random_symmetry(a, generator=Draw(seed)).apply(a)
    low = [network.to(dtype) for network in (a, b)]
    if not all(p.isfinite().all() for network in low for p in network.parameters()):
        return
    high = [DeepMLP(n.layers.weights, n.layers.biases, kind) for n in low]
    for tolerance in (1e-6, 1e-4, 1e-2):
        one, other = align(*low, tolerance=tolerance), align(*high, tolerance=tolerance)
        assert (one is None) is (other is None) and (one is None or one.error == other.error <= tolerance)


@pytest.mark.parametrize("kind", KINDS, ids=name)
@pytest.mark.parametrize("seed", range(3))
def test_silent_units_are_known_by_their_outgoing_weights(kind, seed):
    """Units that read nothing, and units of the next layer that read only these."""
    weights, biases = parameters(random_network([3, 7, 6, 2], kind, seed))
    p = activations.get(kind).centre[0]
    weights[0][[1, 4]], biases[0][[1, 4]] = 0, p
    weights[1][2, [0, 2, 3, 5, 6]], biases[1][2] = 0, p
    weights[1][5], biases[1][5] = 0, p
    a = DeepMLP(weights, biases, kind)
    found = align(a, random_symmetry(a, generator=Draw(seed)).apply(a))
    assert found is not None and found.error < 1e-12


def test_one_dead_unit():
    """The function is one, and only the outgoing weights know that the dead unit was scaled by 2."""
    up = torch.tensor([[1.0, 2], [0, 0]])
    a, b = (DeepMLP([up, torch.tensor([[1.0, w]])], activation="relu") for w in (3.0, 1.5))
    assert align(a, b).factors[0].tolist() == [1, 2] and align(a, b).error == 0


def test_even_units_behind_a_layer_have_a_free_sign():
    """|z|, twice: the sign of v is free, and the units of the first layer stay where they are."""
    w, v, o = torch.tensor([[2.0, -1], [0, -1]]), torch.tensor([[-2.0, 2]]), torch.tensor([[1.0]])
    a, b = (DeepMLP([w, sign * v, o], activation=activations.leaky_relu(-1)) for sign in (1, -1))
    found = align(a, b)
    assert found.error == 0 and [p.tolist() for p in found.permutations] == [[0, 1], [0]]
    assert found.scales[1].tolist() == [-1] and found.factors[1].tolist() == [1]


def test_overflow_is_no_answer():
    up, down = torch.tensor([[1e200, 1.0], [1.0, 1e-200]]), torch.tensor([[1e200, 1e-200]])
    for kind in ("relu", activations.monomial(3)):
        a = DeepMLP([up, down], activation=kind)
        b = DeepMLP([up, 2 * down], activation=kind)
        assert align(a, b) is None
    assert align(DeepMLP([up, down]), DeepMLP([up, down])).error == 0


# ---------------------------------------------------------------------------------------------
# The nearest signed permutation


@st.composite
def square_matrices(draw):
    """Up to 4 × 4, with ties and zeros, or with entries of very different size."""
    n = draw(st.integers(1, 4))
    entry = draw(st.sampled_from([st.integers(-2, 2).map(float), st.floats(-3, 3), st.floats(-1e6, 1e6)]))
    return torch.tensor(draw(st.lists(entry, min_size=n * n, max_size=n * n))).reshape(n, n)


@given(square_matrices())
@settings(max_examples=200)
def test_nearest_signed_permutation_against_all_of_them(matrix):
    nearest = nearest_signed_permutation(matrix)
    all_of_them = signed_permutations(len(matrix))
    assert (all_of_them == nearest).all(dim=(1, 2)).sum() == 1  # it is one
    # its trace with the matrix decides: the squared distances themselves lose digits where entries are large
    best = (all_of_them * matrix).sum((1, 2)).max()
    assert float((nearest * matrix).sum()) == pytest.approx(float(best), rel=1e-12, abs=1e-12)


@given(st.integers(1, 12), st.integers(0, 1000), st.sampled_from([torch.float64, torch.float32]))
def test_nearest_signed_permutation_finds_the_one_that_was_disturbed(n, seed, dtype):
    """Noise below 1/2 in every entry cannot make another one nearer."""
    draw = Draw(seed)
    planted = torch.eye(n)[draw.permutation(n)] * draw.signs(n)[:, None]
    noise = 0.98 * (draw.uniform(n, n) - 0.5)
    matrix = (planted + noise).to(dtype)
    copy = matrix.clone()
    nearest = nearest_signed_permutation(matrix)
    assert torch.equal(nearest, planted.to(dtype)) and nearest.dtype == dtype
    assert torch.equal(matrix, copy)
    assert torch.equal(nearest_signed_permutation(nearest), nearest)


@pytest.mark.parametrize("shape", [(2, 3), (4,), (2, 2, 2)])
def test_nearest_signed_permutation_refuses_what_is_not_square(shape):
    with pytest.raises(
        ValueError, match=re.escape(f"of shape (n, n), got a torch.float64 Tensor of shape {shape}")
    ):
        nearest_signed_permutation(torch.zeros(shape))


@pytest.mark.parametrize("entry", [torch.nan, -torch.inf])
def test_nearest_signed_permutation_refuses_what_is_not_finite(entry):
    with pytest.raises(ValueError, match="matrix must be finite, got NaN or infinity"):
        nearest_signed_permutation(torch.tensor([[1.0, entry], [0, 1]]))
