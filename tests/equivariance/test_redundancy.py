"""``reduce`` and its three moves: the function, α and α*, and as oracle a slow search through all moves."""

import dataclasses

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from samefn import activations
from samefn.draw import Draw
from samefn.equivariance.alignment import align, random_symmetry
from samefn.equivariance.planted import with_spare_units
from samefn.equivariance.redundancy import averaging, drop, fold, merge, reduce
from samefn.equivariance.submodels import MOVES, available_moves, reduce_in_random_order
from samefn.networks import MLP, DeepMLP

from .networks import KINDS, awkward_weights, difference, name, parameters, random_network

# ---------------------------------------------------------------------------------------------
# One move


def chosen_unit(seed):
    """A random layer of a 2 → 4 → 3 → 2 network, and two of its units."""
    draw = Draw(seed)
    layer = draw.integer(1, 3)
    return layer, *draw.permutation((4, 3)[layer - 1])[:2].tolist()


def hidden(network, layer, x):
    for i in range(1, layer + 1):
        x = network.layer(i, x)
    return x.detach()


def assert_submodel(network, move, layer, unit, copied=False):
    """One unit less, the same function, α*α = 1, and α* takes the layer's values to the smaller network's."""
    width = network.widths[layer - 1]
    small = list(network.widths)
    small[layer - 1] -= 1
    assert move.network.widths == tuple(small) and move.network.activations == network.activations
    assert difference(network, move.network) < 1e-12
    torch.testing.assert_close(move.project @ move.include, torch.eye(width - 1), rtol=0, atol=1e-15)
    x = Draw(5).normal(20, 2)
    large, less = hidden(network, layer, x), hidden(move.network, layer, x)
    torch.testing.assert_close(large @ move.project.T, less)
    if not copied:
        large[:, unit] = 0  # α puts a zero there
    torch.testing.assert_close(less @ move.include.T, large)


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_an_inactive_unit_is_dropped(seed, kind):
    layer, unit, _ = chosen_unit(seed)
    weights, biases = parameters(random_network([2, 4, 3, 2], kind, seed))
    weights[layer][:, unit] = 0
    network = DeepMLP(weights, biases, kind)
    assert_submodel(network, drop(network, layer, unit), layer, unit)


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_a_constant_unit_is_folded(seed, kind):
    layer, unit, _ = chosen_unit(seed)
    weights, biases = parameters(random_network([2, 4, 3, 2], kind, seed))
    weights[layer - 1][unit] = 0
    network = DeepMLP(weights, biases, kind)
    assert_submodel(network, fold(network, layer, unit), layer, unit)


SCALES = {
    "tanh": [1, -1],
    "softsign": [1, -1],
    "gelu": [1],
    "sigmoid": [1],
    "relu6": [1],
    "relu": [1, 0.3, 2],
} | {
    "relu_squared": [1, 0.3, 2],
    "leaky_relu(0.2)": [1, 0.3, 2],
    "leaky_relu(-1)": [1, 0.3, 2, -1, -0.3],
    "monomial(2)": [1, 0.3, 2, -1, -0.3],
    "monomial(3)": [1, 0.3, 2, -1, -0.3],
}


@given(st.integers(0, 10**6), st.sampled_from(KINDS))
def test_a_clone_is_merged(seed, kind):
    """The clone's row is the other one's times s; by what its value differs is read off at points."""
    layer, unit, into = chosen_unit(seed)
    draw = Draw(seed)
    s = draw.choice(SCALES[name(kind)])
    weights, biases = parameters(random_network([2, 4, 3, 2], kind, seed))
    for part in (weights[layer - 1], biases[layer - 1]):
        part[unit] = s * part[into]
    network = DeepMLP(weights, biases, kind)
    values = hidden(network, layer, draw.normal(50, 2))
    at = values[:, into].abs().argmax()
    factor = float(values[at, unit] / values[at, into]) if values[at, into] else 1.0
    assert_submodel(network, merge(network, layer, unit, into, factor), layer, unit, copied=True)


def test_the_share_is_what_the_sum_is_multiplied_by():
    network = random_network([2, 4, 3, 2])
    one, half = merge(network, 1, 2, 0, -1.0), merge(network, 1, 2, 0, -1.0, share=0.5)
    wanted = network.weights[1][:, [0, 1, 3]].clone()
    wanted[:, 0] -= network.weights[1][:, 2]
    torch.testing.assert_close(one.network.weights[1], wanted)
    wanted[:, 0] /= 2
    torch.testing.assert_close(half.network.weights[1], wanted)
    assert torch.equal(half.include, one.include)
    assert one.include.tolist() == [[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 1]]
    assert one.project.tolist() == [[0.5, 0, -0.5, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    assert merge(network, 1, 0, 2).include.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_moves_are_for_what_they_say():
    """On a unit that is neither, each of them changes the function."""
    network = random_network([2, 4, 3, 2])
    for move in (drop(network, 1, 2), fold(network, 2, 0), merge(network, 2, 1, 0)):
        assert difference(network, move.network) > 1e-3


@pytest.mark.parametrize("move", [drop, fold, merge])
@pytest.mark.parametrize(
    ("sizes", "layer", "unit", "message"),
    [
        ((2, 3, 2), 0, 0, r"layer must lie in 1\.\.1, got 0"),
        ((2, 3, 2), 2, 0, r"layer must lie in 1\.\.1, got 2"),
        ((2, 3, 2), 1, 3, r"unit must lie in 0\.\.2, got 3"),
        ((2, 3, 2), 1, -1, r"unit must lie in 0\.\.2, got -1"),
        ((2, 1, 2), 1, 0, "layer 1 has one unit only, which must stay"),
    ],
)
def test_moves_refuse(move, sizes, layer, unit, message):
    into = (1,) if move is merge else ()
    with pytest.raises(ValueError, match=message):
        move(random_network(sizes), layer, unit, *into)


def test_merge_refuses_a_unit_for_itself_or_for_none():
    with pytest.raises(ValueError, match="unit and into must differ, got 1 for both"):
        merge(random_network([2, 3, 2]), 1, 1, 1)
    with pytest.raises(ValueError, match=r"unit must lie in 0\.\.2, got 3"):
        merge(random_network([2, 3, 2]), 1, 1, 3)


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from([-2.0, 0.5, 1.0])), min_size=1, max_size=6))
def test_averaging_by_plain_loops(copies):
    """Copies (k, f): a large unit with f times the value of small unit k."""
    copies = [(k, 1.0) for k in range(3)] + copies
    include = torch.zeros(len(copies), 3)
    for j, (k, f) in enumerate(copies):
        include[j, k] = f
    star = averaging(include)
    for k in range(3):
        count = sum(k == j for j, _ in copies)
        for j, (i, f) in enumerate(copies):
            assert float(star[k, j]) == pytest.approx(1 / (f * count) if i == k else 0)
    torch.testing.assert_close(star @ include, torch.eye(3))


# ---------------------------------------------------------------------------------------------
# All moves


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
        y = Draw(i).normal(20, project[i - 1].shape[1])
        left = embedded.layer(i, y) @ project[i].T
        torch.testing.assert_close(left, reduction.network.layer(i, y @ project[i - 1].T))


@given(awkward_weights())
def test_reduce_keeps_the_function_and_is_done(weights):
    network = DeepMLP(*weights)
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


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_reduce_does_not_take_small_numbers_for_zeros(kind):
    """Not even beside large ones: other weights may undo the scale, or the large ones cancel."""
    up, down = torch.tensor([[1e-14, 0.0], [0.0, 1.0]]), torch.tensor([[1e14, 1.0]])
    for weights in ([up, down], [up, down.flip(1)], [up.flip(1), down], [up, torch.tensor([[1e-30, 1.0]])]):
        assert reduce(DeepMLP(weights, activation=kind)).removed == ()


def test_units_that_nearly_coincide_stay_two():
    """Their difference may be all that is left: merged, these would be 0 and 1, not 0.43 and 1.5."""
    x = torch.ones(1, 1)
    near = DeepMLP(
        [torch.ones(2, 1), torch.tensor([[-1e8, 1e8]])], [torch.tensor([0, 5e-9]), torch.zeros(1)], "gelu"
    )
    far = DeepMLP([torch.tensor([[1e10], [1e-3]]), torch.tensor([[1, 1e3]])], activation="tanh")
    for network in (near, far):
        found = reduce(network)
        assert found.removed == () and found.error == 0
        assert float(found.network(x)) == float(network(x))
    axis = DeepMLP([torch.tensor([[1e9, 1e-9], [1e9, 0]]), torch.tensor([[1.0, -1]])], activation="relu")
    assert reduce(axis).removed == ()  # equal to 1e-18 of the row, but not along the second axis


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.sampled_from([torch.float64, torch.float32]))
def test_reduce_says_by_how_much_weights_were_changed(kind, seed, dtype):
    """Clones off by some rounding units of the dtype are merged, and the error is what they are off by."""
    eps = torch.finfo(dtype).eps
    for off, merged in ((0, True), (8 * eps, True), (200 * eps, False)):
        weights, biases = parameters(random_network([2, 4, 2], kind, seed))
        weights[0][2], biases[0][2] = weights[0][0], biases[0][0]
        weights[0][2, 0] *= 1 + off
        network = DeepMLP([w.to(dtype) for w in weights], [b.to(dtype) for b in biases], kind)
        found = reduce(network)
        assert (found.network.widths == (3,)) is merged
        assert found.error <= (16 * eps if merged else 0) and (found.error > eps or off != 8 * eps)
        if kind in ("gelu", "tanh", "relu"):
            assert difference(network.double(), found.network.double()) < 1e3 * eps


@given(st.sampled_from(KINDS), st.integers(0, 10**6), st.integers(-40, 40))
def test_scales_and_orders_do_not_matter_to_reduce(kind, seed, power):
    """Powers of two that the activation allows, and other orders of units: the same units go."""
    network = with_spare_units(
        random_network([2, 4, 3, 2], kind, seed), ("clone", "inactive"), generator=Draw(seed)
    )
    symmetry = random_symmetry(network, generator=Draw(seed + 1))
    exact = tuple(s.sign() * (2.0**power if (s.abs() != 1).any() else 1.0) for s in symmetry.scales)
    moved = dataclasses.replace(symmetry, scales=exact).apply(network)
    one, other = reduce(network), reduce(moved)
    assert one.network.widths == other.network.widths == (4, 3)
    assert one.error <= 1e-14 and other.error <= 1e-14


@pytest.mark.parametrize("tolerance", [-1e-9, 1.0, torch.nan])
def test_reduce_refuses_tolerances(tolerance):
    with pytest.raises(ValueError, match=r"tolerance must be (below 1|None or a number of at least 0), got"):
        reduce(random_network([2, 3, 1]), tolerance=tolerance)


@pytest.mark.parametrize("kind", ["sigmoid", "relu6"])
def test_reflected_clones_are_merged(kind):
    """σ(2p − z) = 2q − σ(z): the next bias takes the constant, α is a sign about the centre."""
    weights, biases = parameters(random_network([3, 4, 3, 2], kind, 1))
    p, q = activations.get(kind).centre
    weights[0][2], biases[0][2] = -weights[0][0], 2 * p - biases[0][0]
    network = DeepMLP(weights, biases, kind)
    found = reduce(network)
    assert found.removed == ("layer 1, unit 2: clone of unit 0",) and found.error < 1e-15
    assert difference(network, found.network) < 1e-12 and difference(network, found.embed()) < 1e-12
    assert found.include[0].tolist() == [[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 1]]
    y = Draw(2).normal(20, 4)
    small = (y - q) @ found.project[0].T + q
    torch.testing.assert_close(found.embed().layer(2, y), found.network.layer(2, small))
    x = Draw(3).normal(20, 3)
    assert torch.allclose((found.network.layer(1, x) - q) @ found.include[0].T + q, found.embed().layer(1, x))


def test_reduce_refuses_other_modules():
    with pytest.raises(TypeError, match="network must be a DeepMLP, got MLP"):
        reduce(MLP(torch.ones(2, 3), torch.ones(3, 2)))


def test_units_keep_their_names():
    """What is removed is told by the units' numbers in the large network, also in later rounds."""
    _, large = redundant("tanh", 0)
    assert set(reduce(large).removed) == {
        "layer 1, unit 5: clone of unit 0",
        "layer 1, unit 6: constant",
        "layer 1, unit 7: inactive",  # read by the inactive unit of layer 2 only
        "layer 2, unit 4: clone of unit 1",
        "layer 2, unit 5: inactive",
    }


@given(
    st.sampled_from([k for k in KINDS if activations.get(k).degree is None]),
    st.permutations(range(3)),
    st.integers(0, 10**6),
)
def test_clones_are_as_near_as_is_said_to_the_one_that_stays(kind, order, seed):
    """Three units, each within 1e-8 of the next, which is no equivalence relation."""
    weights, biases = parameters(random_network([2, 5, 2], kind, seed))
    row = torch.cat([weights[0][0], biases[0][:1]])
    for unit, k in zip((0, 2, 4), order):
        moved = row * (1 + k * 1.6e-8 * torch.tensor([1.0, 0, 0]))
        weights[0][unit], biases[0][unit] = moved[:2], moved[2]
    network = DeepMLP(weights, biases, kind)
    found = reduce(network, tolerance=1e-8)
    width = 3 if order[0] == 1 else 4  # the first stays, and takes those within 1e-8
    assert found.network.widths == (width,) and 1e-9 < found.error <= 1e-8
    assert difference(network, found.network) < 1e-5
    torch.testing.assert_close(found.project[0] @ found.include[0], torch.eye(width))


@given(st.sampled_from(KINDS), st.integers(0, 10**6))
def test_a_random_network_is_left_as_it_is(kind, seed):
    network = random_network([2, 4, 3, 2], kind, seed)
    found = reduce(network)
    assert found.removed == ()
    for one, other in zip(found.network.parameters(), network.parameters()):
        assert torch.equal(one, other)
    for alpha, star, n in zip(found.include, found.project, network.widths):
        assert torch.equal(alpha, torch.eye(n)) and torch.equal(star, torch.eye(n))


def test_reduce_keeps_the_dtype_and_the_missing_biases():
    up = torch.tensor([[1.0, 2], [-1, -2], [0, 1]], dtype=torch.float32)
    found = reduce(DeepMLP([up, torch.tensor([[1, 0.5, 1]], dtype=torch.float32)]))
    assert found.removed == ("layer 1, unit 1: clone of unit 0",)
    assert found.network.biases is None and found.network.weights[0].dtype == torch.float32
    assert found.network.weights[1].tolist() == [[0.5, 1]]


@given(awkward_weights(((1, 4, 2), (2, 4, 1), (2, 3, 3, 1))), st.sampled_from(["tanh", "gelu", "relu"]))
def test_every_available_move_keeps_the_function(weights, kind):
    network = DeepMLP(*weights, kind)
    for what, *arguments in available_moves(network):
        move = MOVES[what](network, *arguments)
        assert difference(network, move.network) < 1e-12
        torch.testing.assert_close(move.project @ move.include, torch.eye(move.include.shape[1]))


@given(awkward_weights(((1, 4, 2), (2, 4, 1), (2, 3, 3, 1))), st.sampled_from(["tanh", "gelu", "relu"]))
def test_reduce_removes_something_where_a_move_is_available(weights, kind):
    network = DeepMLP(*weights, kind)
    found = reduce(network)
    assert (found.removed == ()) is (available_moves(network) == [])
    if found.removed == () or min(found.network.widths) > 1:
        assert available_moves(found.network) == []


@given(awkward_weights(((1, 5, 2), (2, 6, 1), (2, 4, 4, 2))), st.integers(0, 1000))
def test_moves_in_any_order_end_where_reduce_does(weights, seed):
    network = DeepMLP(*weights)
    found = reduce(network).network
    assume(min(found.widths) > 1)
    end = reduce_in_random_order(network, Draw(seed).rng())
    assert end.widths == found.widths and difference(end, network) < 1e-12
