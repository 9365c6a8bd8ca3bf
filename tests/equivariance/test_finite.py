"""Finite deep models: actions against known counts, definitions against brute force, clear errors."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance import finite
from samefn.equivariance.finite import DeepModel, Submodel
from samefn.equivariance.groups import Group, cyclic, generated, symmetric
from samefn.equivariance.layerwise import NotEquivariant, NotIdentifiable

FLIP = ((0, 1), (1, 0))


@pytest.mark.parametrize("n, count", [(1, 1), (2, 2), (3, 6), (4, 30)])
def test_number_of_subgroups_is_the_known_one(n, count):
    assert len(finite.subgroups(n)) == count


def test_subgroups_contain_products_and_inverses():
    for group in finite.subgroups(4):
        assert group.elements[0] == (0, 1, 2, 3)
        pairs = itertools.product(group.elements, repeat=2)
        assert {finite.compose(p, finite.inverse(q)) for p, q in pairs} == set(group.elements)


@pytest.mark.parametrize(
    "group, n, count",
    # |Hom(C_k, S_n)| counts the p in S_n with p^k = 1; |Hom(S_3, S_3)| = 6 inner + 3 through the sign + 1
    [
        (cyclic(2), 3, 4),
        (cyclic(2), 4, 10),
        (cyclic(3), 3, 3),
        (cyclic(4), 4, 16),
        (symmetric(3), 3, 10),
        (cyclic(1), 3, 1),
    ],
)
def test_number_of_actions_is_the_known_one(group, n, count):
    found = finite.actions(group, symmetric(n))
    assert len(set(found)) == len(found) == count
    for action in found:
        for (i, g), (j, h) in itertools.product(enumerate(group.elements), repeat=2):
            product = action[group.index(group.product(g, h))]
            assert product == finite.compose(action[i], action[j])


def test_is_action_refuses_what_is_no_homomorphism():
    turn = (1, 2, 3, 0)
    assert not finite.is_action(cyclic(2), [(0, 1, 2, 3), turn])
    assert not finite.is_action(cyclic(2), [turn, (0, 1, 2, 3)])
    half_turn = finite.compose(turn, turn)
    assert finite.is_action(cyclic(2), [(0, 1, 2, 3), half_turn])


@given(st.integers(0, 10**6))
def test_moving_keeps_the_function_and_relating_finds_the_move(seed):
    theta, k, other = finite.random_parameter(generator=Draw(seed))
    moved = finite.act(k, theta)
    assert finite.function(moved) == finite.function(theta)
    assert finite.act(other, moved) == finite.act([finite.compose(p, q) for p, q in zip(other, k)], theta)
    groups = tuple(generated(p) for p in k)
    sizes = (len(theta[0]), *(len(p) for p in k), max(theta[-1]) + 1)
    model = DeepModel(sizes, tuple(tuple({f, g}) for f, g in zip(theta, moved)), groups)
    related = model.relating(theta, moved)
    assert tuple(k) in related
    assert related == [
        c for c in itertools.product(*(g.elements for g in groups)) if finite.act(c, theta) == moved
    ]


def test_identifiable_agrees_with_the_definition_read_literally():
    maps = tuple(tuple(finite.all_maps(2, 2)) for _ in range(3))
    seen = set()
    for groups in itertools.product(finite.subgroups(2), repeat=2):
        model = DeepModel((2, 2, 2, 2), maps, groups)
        for theta in itertools.islice(model, 0, None, 3):
            literal = all(
                sum(finite.act(k, theta) == other for k in itertools.product(*(g.elements for g in groups)))
                == 1
                for other in model
                if finite.function(other) == finite.function(theta)
            )
            assert model.identifiable(theta) is literal
            seen.add(literal)
    assert seen == {True, False}


def test_latent_actions_say_what_is_wrong():
    maps = tuple(finite.all_maps(2, 2))
    model = DeepModel((2, 2, 2), (maps, maps), (symmetric(2),))
    with pytest.raises(NotEquivariant, match=r"f\(·; θ\) = \(0, 0\)"):
        model.latent_actions(((0, 0), (0, 1)), FLIP, FLIP)
    single = DeepModel((2, 2, 2), (((0, 1),), ((0, 1),)), (symmetric(2),))
    with pytest.raises(ValueError, match="no adjunction"):
        single.latent_actions(((0, 1), (0, 1)), FLIP, FLIP)
    rigid = DeepModel((2, 2, 2), (maps, maps), (generated((0, 1)),))
    with pytest.raises(NotIdentifiable, match="0 symmetries"):
        rigid.latent_actions(((0, 1), (0, 1)), FLIP, FLIP)
    assert model.latent_actions(((0, 1), (1, 0)), FLIP, FLIP) == [FLIP]
    for lengths in ((FLIP, FLIP[:1]), (FLIP[:1], FLIP)):  # not truncated to the shorter
        with pytest.raises(ValueError, match=r"rho_out must move .* as many permutations as rho_in has"):
            model.latent_actions(((0, 1), (0, 1)), *lengths)


def test_input_that_cannot_be_right_is_refused():
    identity, still = ((0, 1),), generated((0, 1))
    with pytest.raises(ValueError, match="need 2 parameter sets and 1 groups, got 1 and 1"):
        DeepModel((2, 2, 2), (identity,), (still,))
    with pytest.raises(ValueError, match="parameters of layer 2 must be maps from 2 to 2 points"):
        DeepModel((2, 2, 2), (identity, ((0, 2),)), (still,))
    with pytest.raises(ValueError, match="parameters of layer 1 must be maps from 2 to 2 points"):
        DeepModel((2, 2, 2), ((), identity), (still,))
    with pytest.raises(ValueError, match="symmetries of layer 1 must be a group of permutations of 2 points"):
        DeepModel((2, 2, 2), (identity, identity), (symmetric(3),))
    with pytest.raises(ValueError, match="n must be between 1 and 4, got 5"):
        finite.subgroups(5)
    model = DeepModel((2, 2, 2), (identity, identity), (still,))
    with pytest.raises(ValueError, match="theta must be a parameter"):
        model.identifiable(((1, 0), (0, 1)))
    stay = ((0, 1),) * 3
    pairs = (((0, 1), (0, 1)),)
    with pytest.raises(ValueError, match="project must undo include"):
        Submodel(model, model, stay, (stay[0], (0, 0), stay[0]), (pairs, pairs))
    both = DeepModel((2, 2, 2), (FLIP, identity), (still,))
    with pytest.raises(ValueError, match="square of layer 1 must commute"):
        Submodel(both, model, stay, stay, ((((0, 1), (1, 0)),), pairs))
    with pytest.raises(ValueError, match="lift must be defined on all parameters of layer 1"):
        Submodel(both, both, stay, stay, (pairs, pairs))


@pytest.mark.parametrize("elements", [((1, 0),), ((0, 1), (0, 0))])
def test_what_is_no_group_of_permutations_cannot_be_a_symmetry(elements):
    with pytest.raises(ValueError, match="elements must"):
        Group("bad", elements, elements)


@given(st.integers(0, 10**6))
def test_relating_in_models_of_any_groups_is_brute_force(seed):
    """Also where no k, or more than one, takes one parameter to the other."""
    draw = Draw(seed)
    sizes = [draw.integer(1, 4) for _ in range(4)]
    maps = [finite.all_maps(n, m) for n, m in itertools.pairwise(sizes)]
    groups = tuple(draw.choice(finite.subgroups(n)) for n in sizes[1:3])
    model = DeepModel(tuple(sizes), tuple(map(tuple, maps)), groups)
    theta, other = (tuple(draw.choice(m) for m in maps) for _ in range(2))
    choices = list(itertools.product(*(g.elements for g in groups)))
    for target in (theta, other, finite.act(draw.choice(choices), theta)):
        assert model.relating(theta, target) == [k for k in choices if plain_act(k, theta) == target]
        assert target in model
    assert theta[:2] not in model and ((9,), *theta[1:]) not in model


def plain_act(k, theta):
    """k_i f_i k_{i−1}⁻¹, point by point."""
    k = [tuple(range(len(theta[0]))), *k, tuple(range(1 + max(theta[-1])))]
    return tuple(
        tuple(after[f[before.index(y)]] for y in range(len(f))) for f, before, after in zip(theta, k, k[1:])
    )


@given(st.integers(0, 10**6), st.booleans())
def test_random_parameters_are_what_they_say(seed, onto):
    theta, *both = finite.random_parameter(onto=onto, generator=Draw(seed))
    sizes = [len(f) for f in theta]
    assert all(2 <= n <= 6 for n in sizes) and all(max(f) < n for f, n in zip(theta, sizes[1:]))
    for k in both:
        assert [sorted(p) for p in k] == [list(range(n)) for n in sizes[1:]]
    if onto:
        assert len(set(sizes)) == 1 and all(sorted(f) == list(range(sizes[0])) for f in theta)
    assert finite.act(both[0], theta) == plain_act(both[0], theta)
    points = range(sizes[0])
    assert finite.function(theta) == tuple(theta[2][theta[1][theta[0][x]]] for x in points)


@given(st.integers(0, 10**6), st.booleans())
def test_random_squares_commute_where_they_say(seed, everywhere):
    small, large, stars = finite.random_squares(everywhere=everywhere, generator=Draw(seed))
    assert stars[0] == tuple(range(len(stars[0]))) and stars[3] == tuple(range(len(stars[3])))
    occurring = set(range(len(large[0])))
    for f, g, before, after in zip(small, large, stars, stars[1:]):
        assert set(before) == set(range(len(f))) and len(before) == len(g)  # α* is onto
        for y in range(len(g)) if everywhere else occurring:
            assert after[g[y]] == f[before[y]]
        occurring = {g[y] for y in occurring}
    points = range(len(large[0]))
    assert [large[2][large[1][large[0][x]]] for x in points] == [
        small[2][small[1][small[0][x]]] for x in points
    ]


def test_squares_may_fail_where_no_value_occurs():
    failed = 0
    for seed in range(20):
        small, large, stars = finite.random_squares(everywhere=False, generator=Draw(seed))
        steps = zip(small, large, stars, stars[1:])
        failed += any(finite.compose(after, g) != finite.compose(f, before) for f, g, before, after in steps)
    assert failed > 0


@given(st.integers(0, 10**6))
def test_transport_point_by_point(seed):
    draw = Draw(seed)
    theta, _, _ = finite.random_parameter(generator=draw)
    m = 1 + max(theta[-1])
    a, b = (tuple(draw.permutation(n).tolist()) for n in (len(theta[0]), m))
    moved = finite.transport(theta, a, b)
    assert moved[1:-1] == theta[1:-1]
    for x in range(len(a)):
        assert moved[0][a[x]] == theta[0][x]
        assert finite.function(moved)[a[x]] == b[finite.function(theta)[x]]


def test_adjunction_is_closure_of_both_ends():
    still, swap = (0, 1), (1, 0)
    rho, stay = (still, swap), (still, still)
    for first in itertools.chain.from_iterable(
        itertools.combinations(finite.all_maps(2, 2), n) for n in (1, 2, 3)
    ):
        closed = all((f[1], f[0]) in first for f in first)
        model = DeepModel((2, 2, 2), (first, tuple(finite.all_maps(2, 2))), (symmetric(2),))
        assert model.has_adjunction(rho, stay) is model.has_adjunction(rho, rho) is closed
        assert model.has_adjunction(stay, rho)
        closed = all((1 - f[0], 1 - f[1]) in first for f in first)
        model = DeepModel((2, 2, 2), (tuple(finite.all_maps(2, 2)), first), (symmetric(2),))
        assert model.has_adjunction(stay, rho) is model.has_adjunction(rho, rho) is closed


@given(st.integers(0, 10**6))
def test_all_latent_actions_are_those_of_brute_force(seed):
    draw = Draw(seed)
    group, sizes = draw.choice([cyclic(2), cyclic(3)]), [draw.integer(1, 4) for _ in range(4)]
    theta = tuple(draw.choice(finite.all_maps(n, m)) for n, m in itertools.pairwise(sizes))
    ends = [draw.choice(finite.actions(group, symmetric(n))) for n in (sizes[0], sizes[3])]
    within = [draw.choice(finite.subgroups(n)) for n in sizes[1:3]]
    wanted = []
    for pair in itertools.product(*(finite.actions(group, k) for k in within)):
        rhos, every = [ends[0], *pair, ends[1]], range(len(group))
        commutes = all(
            f[before[g][y]] == after[g][f[y]]
            for f, before, after in zip(theta, rhos, rhos[1:])
            for g in every
            for y in range(len(f))
        )
        wanted += [list(pair)] if commutes else []
    assert finite.all_latent_actions(group, theta, *ends, within) == wanted
