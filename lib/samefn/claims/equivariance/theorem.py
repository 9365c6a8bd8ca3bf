"""B-T4.1: an identifiable equivariant deep model is equivariant layer by layer.  Chapter
``equivariance/theorem``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np

from ...draw import Draw
from ...equivariance import finite
from ...equivariance import finite_examples as examples
from ...equivariance.finite import FiniteAction, FiniteMap
from ...equivariance.groups import Group, cyclic, dihedral, generated, symmetric
from ...equivariance.layerwise import latent_actions, layer_errors
from ...equivariance.planted import hidden_tanh_network, plane, with_spare_units
from ...equivariance.redundancy import reduce
from ...functions import gap
from .. import Claim, require

claim = Claim(
    id="B-T4.1",
    title="An identifiable equivariant deep model is equivariant layer by layer",
    source="[B], Theorem 4.1 and Remark 4.2",
    hypotheses=(
        "θ identifiable: each θ' of the same function is k·θ for a unique k "
        "(or so in a submodel that has adjunction)",
        "adjunction: G acts on Θ_1 and Θ_L as on input and output",
        "f(gx; θ) = g f(x; θ) for all g and x",
        "for equivariant layers of the large model: α, α* linear, "
        "and θ' with layers α_i f̃_i α*_{i−1} available",
    ),
    uses=("B-D1", "B-D2", "B-D3", "B-D4"),
    chapter="equivariance/theorem",
)


def _census(families: tuple[tuple[int, ...], ...]) -> str:
    counts = examples.total(families)  # raises if the actions of the proof are not the only ones
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


@claim.exact("two layers on at most 2 points, every parameter set that is closed under C₂")
def every_closed_parameter_set() -> str:
    models = satisfied = 0
    for model, *ends in _every_union():
        models += 1
        for theta in model:
            if finite.equivariant(finite.function(theta), *ends) and model.identifiable(theta):
                satisfied += 1
                found = model.latent_actions(theta, *ends)
                oracle = finite.all_latent_actions(cyclic(2), theta, *ends, model.symmetries)
                require(oracle == [found], f"Theorem 4.1 fails for θ = {theta} in {model}, {ends}")
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
    found = example.model.latent_actions(example.theta, example.rho_in, example.rho_out)
    require(found == planted, f"{group.name}: planted {planted}, found {found}")
    require(all(finite.is_action(group, rho) for rho in found), f"{group.name}: no homomorphism")
    return f"{group.name} on {len(planted[0][0])} and {len(planted[1][0])} points"


@claim.exact("planted actions on random cosets, points renamed, found from θ alone")
def actions_on_cosets(draw: Draw) -> str:
    return "; ".join(_planted(group, draw) for group in (symmetric(3), dihedral(4), cyclic(6)))


@claim.exact("ρ = αρ̃α* + (id − αα*) is a representation, ρα = αρ̃ and α*ρ = ρ̃α*")
def extended_action(draw: Draw) -> str:
    a, x = draw.integers(-3, 4, 3, 2).numpy(), draw.integers(-3, 4, 2, 3).numpy()
    two, five = np.eye(2, dtype=int), np.eye(5, dtype=int)
    alpha, star = np.vstack([two, a]), np.hstack([two - x @ a, x])  # α*α = id
    small = [np.linalg.matrix_power(np.array([[0, -1], [1, 0]]), n) for n in range(4)]
    rho = [alpha @ s @ star + five - alpha @ star for s in small]
    for g, h in itertools.product(range(4), repeat=2):
        require((rho[g] @ rho[h] == rho[(g + h) % 4]).all(), "αρ̃α* + id − αα* is no homomorphism")
    pairs = zip(rho, small, strict=True)
    extends = all((r @ alpha == alpha @ s).all() and (star @ r == s @ star).all() for r, s in pairs)
    require(extends, "ρ does not extend ρ̃")
    return "integer matrices, C₄, 16 products"


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


@claim.control("existence", NONE)
def no_existence() -> str:
    return _dropped("existence", NOWHERE)


@claim.control("uniqueness", NONE)
def no_uniqueness() -> str:
    return _dropped("uniqueness", "none in K_1, though some on V_1")


@claim.control("adjunction, input", NONE)
def no_adjunction_at_the_input() -> str:
    return _dropped("adjunction, input", NOWHERE)


@claim.control("adjunction, output", NONE)
def no_adjunction_at_the_output() -> str:
    return _dropped("adjunction, output", NOWHERE)


@claim.control("equivariance", NONE)
def no_equivariance() -> str:
    return _dropped("equivariance", NOWHERE)


@claim.control("adjunction of the submodel", "every θ is identifiable in a submodel with one parameter")
def submodel_with_one_parameter() -> str:
    submodel, *ends = examples.submodel_without_adjunction()
    theta = submodel.beta(next(iter(submodel.small)))
    require(submodel.weakly_identifiable(theta), "not weakly identifiable")
    require(submodel.large.has_adjunction(*ends), "the model has no adjunction")
    require(finite.equivariant(finite.function(theta), *ends), "not equivariant")
    require(not submodel.small.has_adjunction(*ends), "the submodel has adjunction")
    found = finite.all_latent_actions(cyclic(2), theta, *ends, [symmetric(2)])
    require(not found, f"a latent action exists: {found}")
    return "no latent action"


@claim.control("linear α, α*", "on bare sets the submodel's action need not extend to the large model")
def lopsided_sets() -> str:
    submodel, *ends = examples.lopsided_submodel()
    theta = next(iter(submodel.large))
    require(submodel.weakly_identifiable(theta), "not weakly identifiable")
    require(submodel.small.has_adjunction(*ends), "the submodel has no adjunction")
    require(finite.equivariant(finite.function(theta), *ends), "not equivariant")
    same = [other for other in submodel.large if finite.function(other) == finite.function(theta)]
    every = [symmetric(3)]
    some = any(finite.all_latent_actions(cyclic(2), other, *ends, every) for other in same)
    require(not some, "layers of the large model are equivariant")
    return f"none of {len(same)} θ' works"


@claim.control("passing to θ'", "with spare units the layers of θ itself are not equivariant")
def layers_of_theta_itself(draw: Draw) -> str:
    worst = max(layer_errors(*_spared(draw), generator=draw, count=50))
    require(worst > 1e-3, f"the layers of θ itself are equivariant to {worst:.1e}")
    return f"worst layer {worst:.2f}"
