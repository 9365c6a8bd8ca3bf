"""Examples on finite sets, against literal definitions: the census, and what fails without a hypothesis."""

import itertools
from collections import Counter

import pytest

from samefn.draw import Draw
from samefn.equivariance import finite
from samefn.equivariance.finite import DeepModel
from samefn.equivariance.finite_examples import (
    HYPOTHESES,
    Example,
    Facts,
    all_but,
    census,
    composed_actions,
    examples,
    first_example,
    general_cases,
    general_model,
    lopsided_submodel,
    moved_layers,
    normalised,
    not_normalised,
    smallest_model,
    submodel_without_adjunction,
    swallowing_submodel,
    total,
    unsplit,
)
from samefn.equivariance.groups import cyclic, dihedral, generated, symmetric
from samefn.equivariance.layerwise import NotIdentifiable

FLIP = ((0, 1), (1, 0))


def coset_example(group, draw):
    """G → G → G/H → G/H' for random H ⊂ H', hidden points renamed at random; and the actions on these.

    All layers are onto, so that θ is identifiable in its smallest model.
    """
    product = lambda g, h: group.index(group.product(group.elements[g], group.elements[h]))
    every, chosen, blocks = range(len(group)), [0], [[{g} for g in range(len(group))]]
    for i in range(3):
        if i:
            chosen.append(draw.integer(0, len(group)))
        H = set(chosen)
        while more := {product(a, b) for a in H for b in H} - H:
            H |= more
        cosets = []
        for g in every:
            if not any(g in coset for coset in cosets):
                cosets.append({product(g, h) for h in H})
        blocks.append([cosets[j] for j in draw.permutation(len(cosets)).tolist()] if i < 2 else cosets)
    point = lambda of, g: next(j for j, block in enumerate(of) if g in block)
    theta = tuple(
        tuple(point(after, min(block)) for block in before) for before, after in itertools.pairwise(blocks)
    )
    rhos = [tuple(tuple(point(of, product(g, min(b))) for b in of) for g in every) for of in blocks]
    sizes = tuple(map(len, blocks))
    K = [symmetric(n) if n <= 4 else generated(*rho) for n, rho in zip(sizes[1:3], rhos[1:3])]
    return Example(smallest_model(theta, sizes, K, rhos[0], rhos[3]), theta, rhos[0], rhos[3]), rhos[1:3]


def test_census_counts_every_parameter_once():
    counts = census(cyclic(2), (2, 3, 2))
    assert sum(counts.values()) == 2 * 2 * 3**2 * 2**3 * 6  # actions, maps, subgroups
    assert (
        counts[Facts(True, True, True, True, True)] > 0 and counts[Facts(True, False, True, False, False)] > 0
    )


def test_theorem_holds_in_larger_models_where_it_holds_in_the_smallest():
    """The reduction to smallest models: more parameters never make a θ identifiable."""
    rho_in, rho_out = finite.actions(cyclic(2), symmetric(3))[1], FLIP
    everything = tuple(tuple(finite.all_maps(n, m)) for n, m in ((3, 2), (2, 2)))
    large = DeepModel((3, 2, 2), everything, (symmetric(2),))
    kept = 0
    for theta in large:
        small = smallest_model(theta, large.sizes, large.symmetries, rho_in, rho_out)
        assert small.has_adjunction(rho_in, rho_out)
        if large.identifiable(theta):
            assert small.identifiable(theta)
            kept += 1
    assert kept > 0


@pytest.mark.parametrize("group", [symmetric(3), dihedral(4), cyclic(6)], ids=lambda g: g.name)
def test_planted_actions_of_larger_groups_are_found(group):
    for seed in range(5):
        example, planted = coset_example(group, Draw(seed))
        assert example.model.identifiable(example.theta)
        found = example.model.latent_actions(example.theta, example.rho_in, example.rho_out)
        assert found == planted and all(finite.is_action(group, rho) for rho in found)


@pytest.mark.parametrize("dropped", HYPOTHESES)
def test_without_a_hypothesis_there_is_a_model_without_latent_action(dropped):
    example = first_example(dropped)
    assert example.hypotheses() == {name: name != dropped for name in HYPOTHESES}
    assert example.actions(cyclic(2)) == []


def test_up_to_four_points_uniqueness_is_not_missed():
    assert not any(examples(cyclic(2), (1, 4, 2), "uniqueness"))


def test_weak_identifiability_and_the_embedding():
    submodel, _, _ = lopsided_submodel()
    for small in submodel.small:
        theta = submodel.beta(small)
        assert theta in submodel.large and finite.function(theta) == finite.function(small)
        assert finite.function(submodel.embed(small)) == finite.function(small)
        assert submodel.weakly_identifiable(theta) and not submodel.large.identifiable(theta)


def test_the_census_agrees_with_the_definitions_read_literally():
    """Every θ, actions and K_1 on sets of 2, 2 and 2 points, by plain loops over all of them."""
    wanted, still, swap = Counter(), (0, 1), (1, 0)
    for f, g in itertools.product(finite.all_maps(2, 2), repeat=2):
        whole = [g[y] for y in f]
        for a, b in itertools.product((still, swap), repeat=2):
            if [whole[a[x]] for x in (0, 1)] != [b[y] for y in whole]:
                wanted[Facts(False)] += 2
                continue
            firsts = {f, tuple(f[a[x]] for x in (0, 1))}
            lasts = {g, tuple(b[y] for y in g)}
            same = [(p, q) for p in firsts for q in lasts if [q[y] for y in p] == whole]
            latent = [
                k for k in (still, swap) if all(f[a[x]] == k[f[x]] and g[k[x]] == b[g[x]] for x in (0, 1))
            ]
            for K in ((still,), (still, swap)):
                related = [
                    sum(all(k[f[x]] == p[x] and q[k[x]] == g[x] for x in (0, 1)) for k in K) for p, q in same
                ]
                through = any(k in K for k in latent)
                wanted[Facts(True, 0 not in related, max(related) <= 1, through, bool(latent))] += 1
    assert census(cyclic(2), (2, 2, 2)) == wanted
    assert total(((2, 2, 2), (2, 1, 2))) == sum(
        (census(cyclic(n), sizes) for n in (2, 3) for sizes in ((2, 2, 2), (2, 1, 2))), Counter()
    )


def test_facts_that_satisfy_the_theorem():
    assert Facts(True, True, True, True, True).satisfies and Facts(True, True, True).satisfies
    for facts in (Facts(False), Facts(True, False, True, True, True), Facts(True, True, False, True, True)):
        assert not facts.satisfies


def test_smallest_models_hold_the_orbits_and_nothing_else():
    model = smallest_model(((0, 1), (1, 1), (0, 1)), (2, 2, 2, 2), [symmetric(2)] * 2, FLIP, FLIP)
    assert model.parameters == (FLIP, ((1, 1),), FLIP)


def test_without_adjunction_the_models_hold_one_parameter_on_that_side():
    for side, dropped in enumerate(("adjunction, input", "adjunction, output")):
        example = first_example(dropped)
        assert example.model.parameters[side] == (example.theta[side],)
    assert all_but("existence") == {name: name != "existence" for name in HYPOTHESES}
    assert list(examples(cyclic(2), (1, 1, 1), "existence")) == []


def test_two_symmetries_of_order_four_are_not_an_action():
    example = unsplit()
    found = example.model.relating(example.theta, finite.transport(example.theta, (1, 0), (1, 0)))
    assert len(found) == 2
    for (k,) in found:
        assert finite.compose(k, k) != tuple(range(6))
        assert finite.compose(finite.compose(k, k), finite.compose(k, k)) == tuple(range(6))


def test_a_submodel_without_adjunction_does_not_help():
    submodel, rho_in, rho_out = submodel_without_adjunction()
    assert submodel.large.has_adjunction(rho_in, rho_out)
    assert not submodel.small.has_adjunction(rho_in, rho_out)
    (theta,) = submodel.small
    assert submodel.small.identifiable(theta)
    assert finite.equivariant(finite.function(theta), rho_in, rho_out)
    assert submodel.weakly_identifiable(submodel.beta(theta))
    assert finite.all_latent_actions(cyclic(2), theta, rho_in, rho_out, [symmetric(2)]) == []


def test_a_submodel_that_swallows_a_layer_does_not_help():
    submodel, rho_in, rho_out = swallowing_submodel()
    (theta,) = submodel.small
    assert submodel.small.identifiable(theta) and submodel.small.has_adjunction(rho_in, rho_out)
    assert submodel.large.has_adjunction(rho_in, rho_out)
    assert submodel.weakly_identifiable(submodel.beta(theta))
    assert submodel.embed(theta) not in submodel.large  # this is what is missing
    for other in submodel.large:
        assert finite.function(other) == finite.function(theta)
        # no map of the hidden points at all follows the swap, let alone an action
        assert not any(
            all(r[other[0][x]] == other[0][rho_in[1][x]] for x in range(3)) for r in finite.all_maps(2, 2)
        )


def test_moved_layers_take_moved_points_to_moved_points():
    theta, moves = ((0, 1, 1), (1, 0)), ((1, 2, 0), (1, 0), (1, 0))
    moved = moved_layers(theta, moves)
    for f, g, before, after in zip(theta, moved, moves, moves[1:]):
        assert all(g[before[y]] == after[f[y]] for y in range(len(f)))


def test_the_general_form_with_trivial_hidden_actions_is_the_strict_one():
    theta, still = ((0, 1), (0, 1)), ((0, 1), (0, 1))
    K = [symmetric(2)]
    strict = smallest_model(theta, (2, 2, 2), K, FLIP, FLIP)
    general = general_model(theta, K, [FLIP, still, FLIP])
    assert general == strict
    assert composed_actions(general, theta, [FLIP, still, FLIP]) == strict.latent_actions(theta, FLIP, FLIP)
    with pytest.raises(NotIdentifiable, match="0 symmetries"):
        composed_actions(
            general_model(theta, [generated((0, 1))], [FLIP, still, FLIP]), theta, [FLIP, still, FLIP]
        )


def test_general_cases_are_identifiable_and_normalised():
    cases = list(general_cases(cyclic(2), FLIP, FLIP, 2))
    assert cases
    for model, theta, (rho_in, rho, rho_out) in cases:
        assert finite.equivariant(finite.function(theta), rho_in, rho_out)
        assert model.identifiable(theta) and normalised(model.symmetries[0], rho)
    # by hand: f is the identity or the swap, so both layers are permutations, two actions on V_1, and K_1
    # must contain k with k f_1 = g f_1 g⁻¹: the trivial group does where both actions are the swap
    assert len(cases) == 4 * (2 + 1)


def test_without_normalised_symmetries_the_composed_maps_are_no_action():
    model, theta, actions = not_normalised()
    K, g = model.symmetries[0].elements, actions[1][1]
    assert {finite.compose(g, finite.compose(k, g)) for k in K} != set(K) and not normalised(
        model.symmetries[0], actions[1]
    )
    (rho,) = composed_actions(model, theta, actions)
    power = rho[1]
    for _ in range(5):
        power = finite.compose(rho[1], power)
    assert power == (0, 1, 2, 3, 4) and not finite.is_action(cyclic(2), rho)
