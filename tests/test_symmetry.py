"""``align``, ``reduce`` and ``canonical`` against brute force over all signed permutations and planted symmetries."""

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from samefn import activations
from samefn.networks import MLP, DeepMLP
from samefn.symmetry import Symmetry, align, canonical, nearest_signed_permutation, random_symmetry, reduce

torch.set_default_dtype(torch.float64)
settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("fixed")

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


def generator(seed):
    return torch.Generator().manual_seed(seed)


def random_network(sizes, activation="tanh", seed=0, biases=True):
    g = generator(seed)
    weights = [torch.randn(m, n, generator=g) / n**0.5 for n, m in zip(sizes, sizes[1:])]
    return DeepMLP(weights, [torch.randn(m, generator=g) for m in sizes[1:]] if biases else None, activation)


def parameters(network):
    weights = [w.detach().clone() for w in network.weights]
    biases = [b.detach().clone() for b in network.biases] if network.biases is not None else None
    return weights, biases


def noisy(network, size, seed=0):
    g = generator(seed)
    weights, biases = parameters(network)
    jitter = lambda t: t + size * torch.randn(t.shape, generator=g)  # noqa: E731
    return DeepMLP([jitter(w) for w in weights], biases and [jitter(b) for b in biases], network.activations)


def difference(a, b, seed=0):
    x = torch.randn(100, a.dim_in, generator=generator(seed))
    return float((a(x) - b(x)).abs().max() / a(x).abs().max().clamp_min(1e-300))


def signed_permutations(width):
    """All 2^n n! of them, as matrices."""
    orders = torch.eye(width)[torch.tensor(list(itertools.permutations(range(width))))]
    signs = torch.tensor(list(itertools.product((1.0, -1.0), repeat=width)))
    return (signs[:, None, :, None] * orders[None]).reshape(-1, width, width)


def least_error(a, b):
    """The smallest difference of weights over all products of signed permutations: the oracle."""
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


# ---------------------------------------------------------------------------------------------
# Symmetries


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("kind", KINDS, ids=lambda k: getattr(k, "name", k))
def test_symmetries_keep_the_function_and_align_finds_them(kind, biases):
    a = random_network([3, 6, 5, 2], kind, 1, biases)
    planted = random_symmetry(a, generator(2))
    b = planted.apply(a)
    assert difference(a, b) < 1e-12
    found = align(a, b)
    assert found is not None and found.error < 1e-12
    for p, q, f, h in zip(found.permutations, planted.permutations, found.factors, planted.factors):
        assert torch.equal(p, q)
        torch.testing.assert_close(f, h)


def test_matrices_act_on_the_hidden_values():
    a = random_network([3, 5, 4, 2], "relu", 3)
    symmetry = random_symmetry(a, generator(4))
    b = symmetry.apply(a)
    x = torch.randn(10, 3, generator=generator(5))
    for i, matrix in enumerate(symmetry.matrices()):
        y, z = a.layer(1, x), b.layer(1, x)
        if i == 1:
            y, z = a.layer(2, y), b.layer(2, z)
        torch.testing.assert_close(y @ matrix.T, z)


def test_apply_refuses_other_widths():
    a = random_network([3, 5, 2])
    with pytest.raises(ValueError, match=r"hidden widths \(5,\), got \(4,\)"):
        random_symmetry(a, generator(0)).apply(random_network([3, 4, 2]))


# ---------------------------------------------------------------------------------------------
# align


@pytest.mark.parametrize("sizes", [(2, 1, 1), (2, 4, 2), (3, 5, 1), (2, 2, 3, 2)])
@pytest.mark.parametrize("related", [True, False])
def test_align_agrees_with_all_signed_permutations(sizes, related):
    a = random_network(sizes, "tanh", seed=sum(sizes))
    b = noisy(random_symmetry(a, generator(1)).apply(a), 1e-9) if related else random_network(sizes, "tanh", 99)
    oracle, found = least_error(a, b), align(a, b)
    assert (found is not None) == (oracle <= 1e-6) == related
    if related:
        assert found.error == pytest.approx(oracle, rel=1e-6)


@st.composite
def awkward_networks(draw):
    """Small tanh networks with entries in {-1, 0, 1}: full of clones, opposites, constant and inactive units."""
    sizes = draw(st.sampled_from([(1, 3, 1), (2, 4, 1), (2, 3, 2, 1)]))
    entry = st.integers(-1, 1).map(float)
    matrix = lambda *shape: torch.tensor(  # noqa: E731
        draw(st.lists(entry, min_size=torch.Size(shape).numel(), max_size=torch.Size(shape).numel()))
    ).reshape(shape)
    weights = [matrix(m, n) for n, m in zip(sizes, sizes[1:])]
    biases = [matrix(m) for m in sizes[1:]]
    assume(all(w.any() or b.any() for w, b in zip(weights, biases)))  # errors are relative to a layer's largest weight
    return DeepMLP(weights, biases, "tanh")


@given(awkward_networks(), st.integers(0, 1000))
def test_align_relates_awkward_networks(network, seed):
    """Ties everywhere: which symmetry is found is not determined, but one layer deep one must be."""
    moved = noisy(random_symmetry(network, generator(seed)).apply(network), 1e-10, seed)
    found = align(network, moved)
    if len(network.widths) == 1:
        assert found is not None
    assert found is None or found.error < 1e-8


@given(awkward_networks(), awkward_networks())
def test_align_never_relates_what_brute_force_does_not(a, b):
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
    planted = random_symmetry(a, generator(seed))
    b = noisy(planted.apply(a), 1e-10, seed)
    found = align(a, b)
    assert found is not None and found.error < 1e-8
    assert all(map(torch.equal, found.permutations, planted.permutations))


@pytest.mark.parametrize("kind", ["tanh", "gelu", "relu", activations.monomial(3)], ids=lambda k: getattr(k, "name", k))
@pytest.mark.parametrize("seed", range(5))
def test_align_survives_reordered_clones(kind, seed):
    """Three exact clones in the first layer, which only their outgoing weights tell apart."""
    weights, biases = parameters(random_network([3, 6, 5, 2], kind, seed))
    for clone in (2, 4):
        weights[0][clone], biases[0][clone] = weights[0][0], biases[0][0]
    a = DeepMLP(weights, biases, kind)
    planted = random_symmetry(a, generator(seed + 10))
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
    b = random_symmetry(a, generator(1)).apply(a)
    weights, biases = parameters(b)
    weights[0][2, 1] += 1e-7
    size = max(weights[0].abs().max(), biases[0].abs().max())
    assert align(a, DeepMLP(weights, biases)).error == pytest.approx(float(1e-7 / size), rel=1e-6)
    weights[0][2, 1] += 1e-3
    assert align(a, DeepMLP(weights, biases)) is None
    assert align(a, DeepMLP(weights, biases), tolerance=1e-2) is not None


def test_align_relates_scales_far_apart():
    a = random_network([3, 4, 2], "relu", 1)
    scale = torch.tensor([1e-9, 1e9, 1.0, 1e5])
    b = Symmetry((torch.tensor([2, 0, 3, 1]),), (scale,)).apply(a)
    assert torch.allclose(align(a, b).factors[0], scale, rtol=1e-12)


def test_align_without_hidden_layer():
    a = random_network([3, 2])
    assert align(a, a).permutations == ()
    assert align(a, random_network([3, 2], seed=5)) is None


def test_align_refuses_bad_input():
    a = random_network([3, 5, 2])
    with pytest.raises(TypeError, match="b must be a DeepMLP, got MLP"):
        align(a, MLP(torch.ones(2, 3), torch.ones(3, 2)))
    with pytest.raises(ValueError, match="same shapes"):
        align(a, random_network([3, 4, 2]))
    with pytest.raises(ValueError, match="same activations"):
        align(a, random_network([3, 5, 2], "gelu"))


# ---------------------------------------------------------------------------------------------
# reduce


def redundant(kind, seed):
    """A 3-5-4-2 network blown up to 3-8-6-2: two clones and a constant, an inactive unit in each layer."""
    small = random_network([3, 5, 4, 2], kind, seed)
    (w1, w2, w3), (b1, b2, b3) = parameters(small)
    factor = {"tanh": -1.0, "relu": 2.5}.get(kind, 1.0)
    w1 = torch.cat([w1, factor * w1[:1], torch.zeros(1, 3), torch.ones(1, 3)])
    b1 = torch.cat([b1, factor * b1[:1], torch.tensor([0.7, 0.3])])
    w2 = torch.cat([w2, w2[:, :1] / factor, torch.zeros(4, 2)], 1)
    w2[:, 0] -= w2[:, 5] * factor
    w2[:, 0] += 0.25
    w2[:, 5] -= 0.25 / factor
    w2[:, 6] = 1.5
    b2 = b2 - 1.5 * activations.get(kind)(b1[6])
    w2 = torch.cat([w2, w2[1:2], torch.ones(1, 8)])
    b2 = torch.cat([b2, b2[1:2], torch.ones(1)])
    w3 = torch.cat([w3, w3[:, 1:2] * 0.4, torch.zeros(2, 1)], 1)
    w3[:, 1] *= 0.6
    return small, DeepMLP([w1, w2, w3], [b1, b2, b3], kind)


@pytest.mark.parametrize("kind", ["tanh", "relu", "gelu", "sigmoid"])
@pytest.mark.parametrize("seed", range(3))
def test_reduce_finds_the_planted_network(kind, seed):
    small, large = redundant(kind, seed)
    reduction = reduce(large)
    assert reduction.network.widths == small.widths
    assert len(reduction.removed) == 5
    assert difference(large, reduction.network) < 1e-12
    assert align(small, reduction.network).error < 1e-12


@pytest.mark.parametrize("kind", ["tanh", "relu", "gelu"])
def test_include_and_project_commute_with_the_layers(kind):
    """[B], Definition 3: α* f_i(y; β(θ̃)) = f̃_i(α* y; θ̃) for every y, and α* α = 1."""
    _, large = redundant(kind, 0)
    reduction = reduce(large)
    embedded = reduction.embed()
    assert embedded.widths == large.widths and difference(large, embedded) < 1e-12
    identity = torch.eye
    project = [identity(3), *reduction.project, identity(2)]
    for alpha, alpha_star in zip(reduction.include, reduction.project):
        torch.testing.assert_close(alpha_star @ alpha, identity(alpha.shape[1]))
    for i in range(1, 4):
        y = torch.randn(20, project[i - 1].shape[1], generator=generator(i))
        left = embedded.layer(i, y) @ project[i].T
        torch.testing.assert_close(left, reduction.network.layer(i, y @ project[i - 1].T))


@given(awkward_networks())
def test_reduce_keeps_the_function_and_is_done(network):
    reduction = reduce(network)
    assert difference(network, reduction.network) < 1e-12
    assert difference(network, reduction.embed()) < 1e-12
    again = reduce(reduction.network)
    assert again.network.widths == reduction.network.widths
    for alpha, alpha_star in zip(reduction.include, reduction.project):
        torch.testing.assert_close(alpha_star @ alpha, torch.eye(alpha.shape[1]))


def test_reduce_of_a_constant_network():
    network = DeepMLP([torch.zeros(1, 2), torch.ones(2, 1)], [torch.tensor([0.7]), torch.zeros(2)])
    reduction = reduce(network)
    assert reduction.removed == ("layer 1, unit 0: constant",)
    assert difference(network, reduction.network) < 1e-15
    assert torch.equal(reduction.project[0] @ reduction.include[0], torch.ones(1, 1))
    assert difference(network, reduction.embed()) < 1e-15


def test_reduce_does_not_take_small_scales_for_zeros():
    up, down = torch.tensor([[1e-14, 0.0], [0.0, 1.0]]), torch.tensor([[1e14, 1.0]])
    assert reduce(DeepMLP([up, down], activation="relu")).removed == ()
    assert reduce(DeepMLP([up, down.flip(1)], activation="tanh")).removed == ("layer 1, unit 0: constant",)


def test_reduce_refuses_other_modules():
    with pytest.raises(TypeError, match="network must be a DeepMLP, got MLP"):
        reduce(MLP(torch.ones(2, 3), torch.ones(3, 2)))


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
    g = generator(seed)
    planted = torch.eye(n)[torch.randperm(n, generator=g)] * (torch.randint(0, 2, (n, 1), generator=g) * 2.0 - 1)
    noise = 0.98 * (torch.rand(n, n, generator=g) - 0.5)
    matrix = (planted + noise).to(dtype)
    copy = matrix.clone()
    nearest = nearest_signed_permutation(matrix)
    assert torch.equal(nearest, planted.to(dtype)) and nearest.dtype == dtype
    assert torch.equal(matrix, copy)
    assert torch.equal(nearest_signed_permutation(nearest), nearest)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (torch.zeros(2, 3), r"matrix must be square, got shape \(2, 3\)"),
        (torch.zeros(4), r"matrix must be square, got shape \(4,\)"),
        (torch.zeros(2, 2, 2), r"matrix must be square, got shape \(2, 2, 2\)"),
        (torch.tensor([[1.0, torch.nan], [0, 1]]), "matrix must be finite, got NaN or infinity"),
        (torch.tensor([[1.0, 0], [-torch.inf, 1]]), "matrix must be finite, got NaN or infinity"),
    ],
)
def test_nearest_signed_permutation_refuses(matrix, message):
    with pytest.raises(ValueError, match=message):
        nearest_signed_permutation(matrix)


# ---------------------------------------------------------------------------------------------
# canonical


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: getattr(k, "name", k))
@pytest.mark.parametrize("seed", range(3))
def test_canonical_forms_are_equal_iff_related(kind, seed):
    a = random_network([3, 6, 5, 2], kind, seed)
    form = canonical(a)
    assert difference(a, form) < 1e-12
    moved = canonical(random_symmetry(a, generator(seed)).apply(a))
    other = canonical(random_network([3, 6, 5, 2], kind, seed + 50))
    for w, v, u in zip(form.weights, moved.weights, other.weights):
        torch.testing.assert_close(w, v)
        assert not torch.allclose(w, u)


def test_canonical_form_forgets_redundant_units():
    small, large = redundant("tanh", 4)
    for w, v in zip(canonical(small).weights, canonical(large).weights):
        torch.testing.assert_close(w, v)
