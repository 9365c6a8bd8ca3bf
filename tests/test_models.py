"""Finite deep models: groups and actions against known counts, definitions against brute force, clear errors."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from samefn import models
from samefn.claims import theorem
from samefn.claims.model import random_finite
from samefn.equivariance import NotEquivariant, NotIdentifiable
from samefn.groups import cyclic, dihedral, symmetric
from samefn.models import DeepModel, Submodel

FLIP = ((0, 1), (1, 0))


@pytest.mark.parametrize("n, count", [(1, 1), (2, 2), (3, 6), (4, 30)])
def test_number_of_subgroups_is_the_known_one(n, count):
    assert len(models.subgroups(n)) == count


def test_subgroups_contain_products_and_inverses():
    for group in models.subgroups(4):
        assert group[0] == (0, 1, 2, 3)
        assert {models.compose(p, models.inverse(q)) for p in group for q in group} == set(group)


@pytest.mark.parametrize(
    "group, n, count",
    # |Hom(C_k, S_n)| counts the p in S_n with p^k = 1; |Hom(S_3, S_3)| = 6 inner + 3 through the sign + 1
    [(cyclic(2), 3, 4), (cyclic(2), 4, 10), (cyclic(3), 3, 3), (cyclic(4), 4, 16), (symmetric(3), 3, 10), (cyclic(1), 3, 1)],
)
def test_number_of_actions_is_the_known_one(group, n, count):
    found = models.actions(group, models.symmetric(n))
    assert len(set(found)) == len(found) == count
    for action in found:
        for (i, g), (j, h) in itertools.product(enumerate(group.elements), repeat=2):
            product = action[group.index(group.product(g, h))]
            assert product == models.compose(action[i], action[j])


def test_is_action_refuses_what_is_no_homomorphism():
    turn = (1, 2, 3, 0)
    assert not models.is_action(cyclic(2), [(0, 1, 2, 3), turn])
    assert not models.is_action(cyclic(2), [turn, (0, 1, 2, 3)])
    half_turn = models.compose(turn, turn)
    assert models.is_action(cyclic(2), [(0, 1, 2, 3), half_turn])


@given(st.integers(0, 10**6))
def test_moving_keeps_the_function_and_relating_finds_the_move(seed):
    theta, k, other = random_finite(np.random.default_rng(seed))
    moved = models.act(k, theta)
    assert models.function(moved) == models.function(theta)
    assert models.act(other, moved) == models.act([models.compose(p, q) for p, q in zip(other, k)], theta)
    groups = tuple(models.generated(p) for p in k)
    sizes = (len(theta[0]), *(len(p) for p in k), max(theta[-1]) + 1)
    model = DeepModel(sizes, tuple(tuple({f, g}) for f, g in zip(theta, moved)), groups)
    related = models.relating(model, theta, moved)
    assert tuple(k) in related
    assert related == [c for c in itertools.product(*groups) if models.act(c, theta) == moved]


def test_identifiable_agrees_with_the_definition_read_literally():
    maps = tuple(tuple(models.all_maps(2, 2)) for _ in range(3))
    seen = set()
    for groups in itertools.product(models.subgroups(2), repeat=2):
        model = DeepModel((2, 2, 2, 2), maps, groups)
        for theta in itertools.islice(model, 0, None, 3):
            literal = all(
                sum(models.act(k, theta) == other for k in itertools.product(*groups)) == 1
                for other in model
                if models.function(other) == models.function(theta)
            )
            assert models.identifiable(model, theta) is literal
            seen.add(literal)
    assert seen == {True, False}


def test_census_counts_every_parameter_once():
    counts = theorem.census(cyclic(2), (2, 3, 2))
    assert sum(counts.values()) == 2 * 2 * 3**2 * 2**3 * 6  # actions, maps, subgroups
    assert counts[True, True, True, True, True] > 0 and counts[True, False, True, False, False] > 0


def test_theorem_holds_in_larger_models_where_it_holds_in_the_smallest():
    """The reduction to smallest models: more parameters never make a θ identifiable."""
    rho_in, rho_out = models.actions(cyclic(2), models.symmetric(3))[1], FLIP
    everything = tuple(tuple(models.all_maps(n, m)) for n, m in ((3, 2), (2, 2)))
    large = DeepModel((3, 2, 2), everything, (models.symmetric(2),))
    kept = 0
    for theta in large:
        small = theorem.smallest_model(theta, large.sizes, large.symmetries, rho_in, rho_out)
        assert models.has_adjunction(small, rho_in, rho_out)
        if models.identifiable(large, theta):
            assert models.identifiable(small, theta)
            kept += 1
    assert kept > 0


@pytest.mark.parametrize("group", [symmetric(3), dihedral(4), cyclic(6)], ids=lambda g: g.name)
def test_planted_actions_of_larger_groups_are_found(group):
    for seed in range(5):
        example, planted = theorem.coset_example(group, np.random.default_rng(seed))
        assert models.identifiable(example.model, example.theta)
        found = models.latent_actions(example.model, example.theta, example.rho_in, example.rho_out)
        assert found == planted and all(models.is_action(group, rho) for rho in found)


@pytest.mark.parametrize("dropped", theorem.HYPOTHESES)
def test_without_a_hypothesis_there_is_a_model_without_latent_action(dropped):
    example = theorem.first_example(dropped)
    assert example.hypotheses() == {name: name != dropped for name in theorem.HYPOTHESES}
    assert example.actions(cyclic(2)) == []


def test_up_to_four_points_uniqueness_is_not_missed():
    assert not any(theorem.examples(cyclic(2), (1, 4, 2), "uniqueness"))


def test_latent_actions_say_what_is_wrong():
    maps = tuple(models.all_maps(2, 2))
    model = DeepModel((2, 2, 2), (maps, maps), (models.symmetric(2),))
    with pytest.raises(NotEquivariant, match=r"f\(·; θ\) = \(0, 0\)"):
        models.latent_actions(model, ((0, 0), (0, 1)), FLIP, FLIP)
    single = DeepModel((2, 2, 2), (((0, 1),), ((0, 1),)), (models.symmetric(2),))
    with pytest.raises(ValueError, match="no adjunction"):
        models.latent_actions(single, ((0, 1), (0, 1)), FLIP, FLIP)
    rigid = DeepModel((2, 2, 2), (maps, maps), (((0, 1),),))
    with pytest.raises(NotIdentifiable, match="0 symmetries"):
        models.latent_actions(rigid, ((0, 1), (0, 1)), FLIP, FLIP)
    assert models.latent_actions(model, ((0, 1), (1, 0)), FLIP, FLIP) == [FLIP]


def test_weak_identifiability_and_the_embedding():
    submodel, rho_in, rho_out = theorem.lopsided_submodel()
    for small in submodel.small:
        theta = submodel.beta(small)
        assert theta in submodel.large and models.function(theta) == models.function(small)
        assert models.function(submodel.embed(small)) == models.function(small)
        assert models.weakly_identifiable(submodel, theta) and not models.identifiable(submodel.large, theta)


def test_input_that_cannot_be_right_is_refused():
    identity = ((0, 1),)
    with pytest.raises(ValueError, match="need 2 parameter sets and 1 groups, got 1 and 1"):
        DeepModel((2, 2, 2), (identity,), (identity,))
    with pytest.raises(ValueError, match="parameters of layer 2 must be maps from 2 to 2 points"):
        DeepModel((2, 2, 2), (identity, ((0, 2),)), (identity,))
    with pytest.raises(ValueError, match="symmetries of layer 1 must be a group"):
        DeepModel((2, 2, 2), (identity, identity), (((1, 0),),))
    with pytest.raises(ValueError, match="symmetries of layer 1 must be a group"):
        DeepModel((2, 2, 2), (identity, identity), (((0, 1), (0, 0)),))
    with pytest.raises(ValueError, match="n must be between 1 and 4, got 5"):
        models.subgroups(5)
    model = DeepModel((2, 2, 2), (identity, identity), (identity,))
    with pytest.raises(ValueError, match="theta must be a parameter"):
        models.identifiable(model, ((1, 0), (0, 1)))
    stay = ((0, 1),) * 3
    pairs = (((0, 1), (0, 1)),)
    with pytest.raises(ValueError, match="project must undo include"):
        Submodel(model, model, stay, (stay[0], (0, 0), stay[0]), (pairs, pairs))
    both = DeepModel((2, 2, 2), (FLIP, identity), (identity,))
    with pytest.raises(ValueError, match="square of layer 1 must commute"):
        Submodel(both, model, stay, stay, ((((0, 1), (1, 0)),), pairs))
