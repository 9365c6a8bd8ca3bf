"""B-T4.1: an identifiable equivariant deep model is equivariant layer by layer.  Chapter
``equivariance/theorem``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

from ...draw import Draw
from ...equivariance import finite
from ...equivariance import finite_examples as examples
from ...equivariance.finite import FiniteAction, FiniteMap, Parameter
from ...equivariance.groups import Group, cyclic, dihedral, generated, symmetric
from ...equivariance.layerwise import latent_actions, layer_errors
from ...equivariance.planted import hidden_tanh_network, plane, with_spare_units
from ...equivariance.redundancy import reduce
from ...functions import gap
from .. import Claim, ClaimFailed, require

claim = Claim(
    id="B-T4.1",
    title="An identifiable equivariant deep model is equivariant layer by layer",
    source="[B], Theorem 4.1 and Remark 4.2",
    hypotheses=(
        "θ identifiable: each θ' of the same function is k·θ for some k",
        "θ identifiable: for no θ' by two k",
        "adjunction at the input: G acts on Θ_1 as on V_0",
        "adjunction at the output: G acts on Θ_L as on V_L",
        "f(gx; θ) = g f(x; θ) for all g and x",
        "θ = β(θ̃), θ̃ identifiable in a submodel: the submodel has adjunction",
        "θ = β(θ̃): each α f̃ α* is a layer of the large model",
        "an action on the large latent spaces: these are vector spaces, and α* is affine",
    ),
    uses=("B-D1", "B-D2", "B-D3", "B-D4"),
    chapter="equivariance/theorem",
)
EXISTS, ONCE, INPUT, OUTPUT, EQUIVARIANT, SUBMODEL, LAYERS, SPACES = claim.hypotheses


def _census(families: tuple[tuple[int, ...], ...]) -> str:
    try:
        counts = examples.total(families)  # raises if the actions of the proof are not the only ones
    except (AssertionError, ValueError) as failure:
        raise ClaimFailed(str(failure)) from failure
    satisfied = [facts for facts in counts if facts.satisfies]
    missing = sum(counts[facts] for facts in satisfied if not (facts.through_K and facts.anywhere))
    require(not missing, f"a latent action is missing for {missing} parameters")
    number = sum(counts[facts] for facts in satisfied)
    require(number, "no parameter satisfies the hypotheses")
    return f"{counts.total():,} parameters in models, {number:,} satisfy the hypotheses, 0 exceptions"


EVERY = "C₂ and C₃, every θ, every K_i: one latent action wherever the hypotheses hold"


@claim.exact(f"two layers on at most 3 points, {EVERY}")
def two_layers() -> str:
    return _census(examples.TWO_LAYERS)


@claim.exact(f"three layers on at most 2 points, and on 2, 3, 2, 2; 2, 2, 3, 2; 3, 2, 2, 3 points, {EVERY}")
def three_layers() -> str:
    return _census(examples.THREE_LAYERS)


def _by_the_proof(example: examples.Example) -> list[FiniteAction] | None:
    """ρ = k⁻¹, or None if the proof's steps cannot be taken."""
    try:
        return example.model.latent_actions(example.theta, example.rho_in, example.rho_out)
    except ValueError:
        return None


def _the_only_maps(example: examples.Example, rhos: Sequence[FiniteAction]) -> bool:
    """For each g these are the only (p_1, …, p_{L−1}) ∈ K_1 × … × K_{L−1} with f_i p_{i−1} = p_i f_i: by
    brute force.
    """
    theta, hidden = example.theta, [K.elements for K in example.model.symmetries]
    for a, b, *found in zip(example.rho_in, example.rho_out, *rhos, strict=True):
        fitting = [
            p
            for p in itertools.product(*hidden)
            if all(finite.compose(f, x) == finite.compose(y, f) for f, x, y in zip(theta, (a, *p), (*p, b)))
        ]
        if fitting != [tuple(found)]:
            return False
    return True


def _closed(
    maps: list[FiniteMap], move: Callable[[FiniteMap], set[FiniteMap]]
) -> list[tuple[FiniteMap, ...]]:
    """Every nonempty union of orbits."""
    orbits = sorted({tuple(sorted(move(f))) for f in maps})
    unions = (itertools.combinations(orbits, n) for n in range(1, len(orbits) + 1))
    return [sum(some, ()) for some in itertools.chain(*unions)]


def _every_union() -> Iterator[tuple[finite.DeepModel, FiniteAction, FiniteAction]]:
    """Every two-layer model with at most 2 points a set, Θ_1 and Θ_L closed under C_2, and every K_1."""
    for sizes in itertools.product((1, 2), repeat=3):
        ends = (finite.actions(cyclic(2), symmetric(sizes[i])) for i in (0, 2))
        for rho_in, rho_out in itertools.product(*ends):
            carried = lambda f, rho=rho_in: {finite.compose(f, finite.inverse(a)) for a in rho}
            moved = lambda f, rho=rho_out: {finite.compose(b, f) for b in rho}
            first = _closed(finite.all_maps(*sizes[:2]), carried)
            last = _closed(finite.all_maps(*sizes[1:]), moved)
            for one, two, K in itertools.product(first, last, finite.subgroups(sizes[1])):
                yield finite.DeepModel(sizes, (one, two), (K,)), rho_in, rho_out


@claim.exact("two layers on at most 2 points, every parameter set that is closed under C₂: only k⁻¹ fits")
def every_closed_parameter_set() -> str:
    models = satisfied = 0
    for model, *ends in _every_union():
        models += 1
        for theta in model:
            if finite.equivariant(finite.function(theta), *ends) and model.identifiable(theta):
                satisfied += 1
                found = _by_the_proof(example := examples.Example(model, theta, *ends))
                fits = found and example.actions(cyclic(2)) == [found] and _the_only_maps(example, found)
                require(fits, f"Theorem 4.1 fails for θ = {theta} in {model}, {ends}")
    return f"{models:,} models, {satisfied:,} identifiable equivariant parameters, 0 exceptions"


def _renamed_cosets(group: Group, chain: list[tuple[int, ...]], draw: Draw) -> list[list[int]]:
    """For G and each subgroup of a chain: the point to which each element of G belongs, points renamed at
    random.
    """
    places = [list(range(len(group)))]
    for i, subgroup in enumerate(chain):
        cosets = group.cosets(subgroup)
        order = draw.permutation(len(cosets)).tolist() if i < len(chain) - 1 else range(len(cosets))
        place = {g: order[j] for j, coset in enumerate(cosets) for g in coset}
        places.append([place[g] for g in range(len(group))])
    return places


def _coset_example(group: Group, draw: Draw) -> tuple[examples.Example, list[FiniteAction]]:
    """G → G → G/H → G/H' for random subgroups H ⊂ H'; and the actions on the hidden sets.

    All layers are onto, so that θ is identifiable in its smallest model (the chapter's exercise).
    """
    chosen = draw.integers(0, len(group), 2).tolist()
    chain = [group.subgroup(chosen[:count]) for count in (0, 1, 2)]
    places = _renamed_cosets(group, chain, draw)
    sizes = tuple(max(place) + 1 for place in places)
    theta, rhos = [], []
    for before, after in itertools.pairwise(places):
        theta.append(tuple(after[before.index(point)] for point in range(max(before) + 1)))
    for place in places:
        points = [place.index(point) for point in range(max(place) + 1)]
        rhos.append(tuple(tuple(place[group.table[g][p]] for p in points) for g in range(len(group))))
    K = [symmetric(n) if n <= 4 else generated(*rho) for n, rho in zip(sizes, rhos, strict=True)]
    model = examples.smallest_model(tuple(theta), sizes, K[1:3], rhos[0], rhos[3])
    return examples.Example(model, tuple(theta), rhos[0], rhos[3]), rhos[1:3]


def _planted(group: Group, draw: Draw) -> str:
    example, planted = _coset_example(group, draw)
    require(all(example.hypotheses().values()), f"{group.name}: hypotheses {example.hypotheses()}")
    found = _by_the_proof(example)
    require(found == planted, f"{group.name}: planted {planted}, found {found}")
    require(all(finite.is_action(group, rho) for rho in planted), f"{group.name}: no homomorphism")
    require(_the_only_maps(example, planted), f"{group.name}: other maps fit, too")
    return f"{group.name} on {len(planted[0][0])} and {len(planted[1][0])} points"


@claim.exact("planted actions on random cosets, points renamed, found from θ alone; no other maps fit")
def actions_on_cosets(draw: Draw) -> str:
    return "; ".join(_planted(group, draw) for group in (symmetric(3), dihedral(4), cyclic(6)))


Point = tuple[int, int]  # of the plane over F_3
PLANE = list(itertools.product(range(3), repeat=2))


def extended(alpha: Sequence[Point], star: dict[Point, int], small: FiniteMap, y: Point) -> Point:
    """ρ(g)y = α(ρ̃(g)α*y) + y − α(α*y), where ``small`` is ρ̃(g)."""
    there, back = alpha[small[star[y]]], alpha[star[y]]
    return (there[0] + y[0] - back[0]) % 3, (there[1] + y[1] - back[1]) % 3


@claim.exact(
    "the plane over F₃, every affine α* to a line, every α with α*α = id, S₃: "
    "y ↦ αρ̃(g)α*y + y − αα*y is an action, and α, α* are equivariant"
)
def extended_action() -> str:
    three, tried = symmetric(3), 0
    for a, b, shift in itertools.product(range(3), repeat=3):
        star = {y: (a * y[0] + b * y[1] + shift) % 3 for y in PLANE}
        fibres = [[y for y in PLANE if star[y] == value] for value in range(3)]
        for alpha in itertools.product(*fibres):  # none if α* is constant
            rho = [{y: extended(alpha, star, small, y) for y in PLANE} for small in three.elements]
            acts = rho[0] == dict(zip(PLANE, PLANE, strict=True)) and all(
                rho[three.table[g][h]] == {y: rho[g][rho[h][y]] for y in PLANE}
                for g, h in itertools.product((three.index(g) for g in three.generators), range(6))
            )
            fits = all(
                [moved[y] for y in alpha] == [alpha[p] for p in small]
                and all(star[moved[y]] == small[star[y]] for y in PLANE)
                for moved, small in zip(rho, three.elements, strict=True)
            )
            require(acts and fits, f"α = {alpha}, α* = {star}: action {acts}, equivariant {fits}")
            tried += 1
    require(tried, "no α* was tried")
    return f"{tried} pairs α, α*"


def _spared(draw: Draw):
    """A C_4-equivariant tanh network with spare units in layer 1, and its representations on all layers."""
    rho = plane(cyclic(4))
    network = hidden_tanh_network(rho.group, generator=draw)
    network = with_spare_units(network, ("clone", "inactive"), layers=(1,), generator=draw)
    return network, [rho, *latent_actions(network, rho, rho), rho]


@claim.numeric(
    "tanh network with a clone and an inactive unit: θ' has the same function and equivariant layers"
)
def units_in_step(draw: Draw) -> str:
    network, rhos = _spared(draw)
    in_step = reduce(network).embed()
    change, worst = (
        gap(network, in_step, draw.normal(50, 2)),
        max(layer_errors(in_step, rhos, generator=draw, count=50)),
    )
    require(max(change, worst) < 1e-10, f"worst layer {worst:.1e}, change of the function {change:.1e}")
    return f"worst layer {worst:.1e}, change of the function {change:.1e}"


def _dropped(dropped: str, where: str) -> str:
    example = examples.first_example(dropped)
    found = example.hypotheses()
    require(found == examples.all_but(dropped), f"without {dropped}: {found}")
    require(not example.actions(cyclic(2)), f"without {dropped} there is a latent action in K_1 after all")
    anywhere = example.actions(cyclic(2), [symmetric(example.model.sizes[1])])
    require(bool(anywhere) is (dropped == "uniqueness"), f"without {dropped}: {len(anywhere)} actions on V_1")
    return f"sizes {example.model.sizes}: {where}"


NONE = "all other hypotheses hold, and no latent action exists"
NOWHERE = "none on V_1 at all"


@claim.control(EXISTS, NONE)
def no_existence() -> str:
    return _dropped("existence", NOWHERE)


@claim.control(ONCE, NONE)
def no_uniqueness() -> str:
    return _dropped("uniqueness", "none in K_1, though some on V_1")


@claim.control(INPUT, NONE)
def no_adjunction_at_the_input() -> str:
    return _dropped("adjunction, input", NOWHERE)


@claim.control(OUTPUT, NONE)
def no_adjunction_at_the_output() -> str:
    return _dropped("adjunction, output", NOWHERE)


@claim.control(EQUIVARIANT, NONE)
def no_equivariance() -> str:
    return _dropped("equivariance", NOWHERE)


def _submodel_dropped(
    example: tuple[finite.Submodel, FiniteAction, FiniteAction], dropped: str
) -> list[Parameter]:
    """The θ' with the function of a weakly identifiable θ, if only ``dropped`` fails and none of them has
    equivariant layers, with any permutations of the V_i.
    """
    submodel, *ends = example
    (small,) = itertools.islice(submodel.small, 1)
    theta = submodel.beta(small)
    require(submodel.weakly_identifiable(theta), "not weakly identifiable")
    require(submodel.large.has_adjunction(*ends), "the model has no adjunction")
    require(finite.equivariant(finite.function(theta), *ends), "not equivariant")
    holds = {SUBMODEL: submodel.small.has_adjunction(*ends), LAYERS: submodel.embed(small) in submodel.large}
    require(all(holds[name] is (name != dropped) for name in holds), f"{holds}")
    same = [other for other in submodel.large if finite.function(other) == finite.function(theta)]
    every = [symmetric(n) for n in submodel.large.sizes[1:-1]]
    found = [other for other in same if finite.all_latent_actions(cyclic(2), other, *ends, every)]
    require(not found, f"the layers of {found} are equivariant")
    return same


@claim.control(SUBMODEL, "one parameter, identifiable for lack of others: no θ' has equivariant layers")
def submodel_with_one_parameter() -> str:
    return f"none of {len(_submodel_dropped(examples.submodel_without_adjunction(), SUBMODEL))} θ' works"


@claim.control(LAYERS, "one hidden point that has swallowed layer 2: no θ' has equivariant layers")
def swallowed_layer() -> str:
    return f"none of {len(_submodel_dropped(examples.swallowing_submodel(), LAYERS))} θ' works"


@claim.control(SPACES, "bare sets: the submodel has an action, but no θ' has equivariant layers")
def lopsided_sets() -> str:
    return f"none of {len(_submodel_dropped(examples.lopsided_submodel(), SPACES))} θ' works"


@claim.control("passing to θ'", "with spare units the layers of θ itself are not equivariant")
def layers_of_theta_itself(draw: Draw) -> str:
    worst = max(layer_errors(*_spared(draw), generator=draw, count=50))
    require(worst > 1e-3, f"the layers of θ itself are equivariant to {worst:.1e}")
    return f"worst layer {worst:.2f}"
