"""B-T4.1: an identifiable equivariant deep model is equivariant layer by layer.  Chapter ``equivariance/theorem``."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import torch

from ..equivariance import equivariance_error, symmetrise
from ..equivariance import latent_actions as latent_representations
from ..groups import Group, Representation, cyclic, dihedral, direct_sum, permutation_representation, representation
from ..groups import symmetric as symmetric_group
from ..models import (
    Action,
    DeepModel,
    Map,
    Parameter,
    Submodel,
    actions,
    all_latent_actions,
    all_maps,
    compose,
    equivariant,
    function,
    generated,
    has_adjunction,
    identifiable,
    inverse,
    is_action,
    latent_actions,
    obstructions,
    subgroups,
    symmetric,
    weakly_identifiable,
)
from ..networks import DeepMLP
from ..symmetry import random_symmetry, reduce
from . import Claim, ClaimFailed, Control, Evidence, require


def smallest_model(
    theta: Parameter, sizes: Sequence[int], K: Sequence[tuple[Map, ...]], rho_in: Action, rho_out: Action
) -> DeepModel:
    """The least model with adjunction that contains θ: the orbits of θ_1 and θ_L, and θ_2, …, θ_{L−1} alone.

    A θ that is identifiable in some model with adjunction is so in this one, which has fewer θ' (L ≥ 2).
    """
    first = {compose(theta[0], inverse(a)) for a in rho_in}
    last = {compose(b, theta[-1]) for b in rho_out}
    parameters = (tuple(sorted(first)), *((f,) for f in theta[1:-1]), tuple(sorted(last)))
    return DeepModel(tuple(sizes), parameters, tuple(K))


@cache
def census(group: Group, sizes: tuple[int, ...]) -> Counter:
    """How often each combination of facts holds, over all θ, all actions of G on V_0 and V_L, and all groups K_i.

    Each θ stands in its smallest model.  Keys are (equivariant, exists, unique, through K, through Sym): f(·; θ) is
    equivariant; each θ' of that function is k·θ for at least one k, for at most one; some latent action in the K_i,
    some in the Sym(n_i), makes every layer equivariant.  Raises ClaimFailed if Theorem 4.1 fails anywhere.
    """
    counts: Counter = Counter()
    hidden = sizes[1:-1]
    every = [symmetric(n) for n in hidden]
    choices = list(itertools.product(*(subgroups(n) for n in hidden)))
    ends = list(itertools.product(actions(group, symmetric(sizes[0])), actions(group, symmetric(sizes[-1]))))
    for theta in itertools.product(*map(all_maps, sizes, sizes[1:])):
        f = function(theta)
        for rho_in, rho_out in ends:
            if not equivariant(f, rho_in, rho_out):
                counts[False, None, None, None, None] += len(choices)
                continue
            anywhere = all_latent_actions(group, theta, rho_in, rho_out, every)
            for K in choices:
                model = smallest_model(theta, sizes, K, rho_in, rho_out)
                related = [len(k) for _, k in obstructions(model, theta)]
                exists, unique = 0 not in related, all(n <= 1 for n in related)
                through = [rhos for rhos in anywhere if all(set(rho) <= set(k) for rho, k in zip(rhos, K))]
                if exists and unique and through != [latent_actions(model, theta, rho_in, rho_out)]:
                    raise ClaimFailed(f"Theorem 4.1 fails for θ = {theta}, K = {K}, {rho_in}, {rho_out}")
                counts[True, exists, unique, bool(through), bool(anywhere)] += 1
    return counts


HYPOTHESES = ("existence", "uniqueness", "adjunction, input", "adjunction, output", "equivariance")


@dataclass(frozen=True)
class Example:
    """A parameter of a finite model with actions on input and output."""

    model: DeepModel
    theta: Parameter
    rho_in: Action
    rho_out: Action

    def hypotheses(self) -> dict[str, bool]:
        """Which hypotheses of Theorem 4.1 hold; identifiability is existence and uniqueness."""
        related = [len(k) for _, k in obstructions(self.model, self.theta)]
        stay = [tuple(range(n)) for n in (self.model.sizes[0], self.model.sizes[-1])]
        values = (
            0 not in related,
            all(n <= 1 for n in related),
            has_adjunction(self.model, self.rho_in, (stay[1],)),
            has_adjunction(self.model, (stay[0],), self.rho_out),
            equivariant(function(self.theta), self.rho_in, self.rho_out),
        )
        return dict(zip(HYPOTHESES, values))

    def actions(self, group: Group, within: Sequence[tuple[Map, ...]] | None = None) -> list[list[Action]]:
        """All latent actions in the groups ``within``, by default the K_i of the model, for which all layers are equivariant."""
        return all_latent_actions(group, self.theta, self.rho_in, self.rho_out, within or self.model.symmetries)


def examples(group: Group, sizes: tuple[int, ...], dropped: str) -> Iterator[Example]:
    """Every two-layer example of these sizes that has all hypotheses but ``dropped``, and no latent action in Sym(n_1).

    Where uniqueness is dropped: none in K_1.  Where adjunction is, Θ_i of that side has the one parameter θ_i;
    otherwise the models are smallest ones.
    """
    ends = itertools.product(actions(group, symmetric(sizes[0])), actions(group, symmetric(sizes[2])))
    wanted = {name: name != dropped for name in HYPOTHESES}
    for (rho_in, rho_out), theta in itertools.product(ends, itertools.product(*map(all_maps, sizes, sizes[1:]))):
        if equivariant(function(theta), rho_in, rho_out) is (dropped == "equivariance"):
            continue
        for K in subgroups(sizes[1]):
            model = smallest_model(theta, sizes, [K], rho_in, rho_out)
            if dropped.startswith("adjunction"):
                maps = list(model.parameters)
                side = 0 if dropped.endswith("input") else 1
                maps[side] = (theta[side],)
                model = DeepModel(sizes, tuple(maps), (K,))
            example = Example(model, theta, rho_in, rho_out)
            within = [K if dropped == "uniqueness" else symmetric(sizes[1])]
            if not example.actions(group, within) and example.hypotheses() == wanted:
                yield example


@cache
def first_example(dropped: str) -> Example:
    """The first of :func:`examples` for C_2, from the fewest points on; :func:`unsplit` for uniqueness, which needs more."""
    if dropped == "uniqueness":
        return unsplit()
    families = sorted(itertools.product((1, 2, 3), repeat=3), key=lambda sizes: (sum(sizes), sizes))
    return next(example for sizes in families for example in examples(cyclic(2), sizes, dropped))


def unsplit() -> Example:
    """C_2 swaps input and output, K_1 is generated by (0 1)(2 3 4 5), and two k take θ to θ^g, both of order 4."""
    flip = ((0, 1), (1, 0))
    theta = ((0, 1), (0, 1, 0, 1, 0, 1))
    K = generated((1, 0, 3, 4, 5, 2))
    return Example(smallest_model(theta, (2, 6, 2), [K], flip, flip), theta, flip, flip)


def submodel_without_adjunction() -> tuple[Submodel, Action, Action]:
    """A model with adjunction, and in it the submodel whose parameter sets hold one parameter each.

    Its θ is trivially identifiable in the submodel, the model's function is equivariant, no latent action exists.
    """
    rho_in, rho_out = ((0, 1, 2), (0, 2, 1)), ((0,), (0,))
    theta = ((0, 0, 1), (0, 0))
    large = smallest_model(theta, (3, 2, 1), [symmetric(2)], rho_in, rho_out)
    small = DeepModel((3, 2, 1), tuple((f,) for f in theta), (symmetric(2)[:1],))
    stay = tuple(tuple(range(n)) for n in (3, 2, 1))
    return Submodel(large, small, stay, stay, tuple(((f, f),) for f in theta)), rho_in, rho_out


def lopsided_submodel() -> tuple[Submodel, Action, Action]:
    """C_2 swaps the two points of the small latent set; above one of them the large latent set has two points, above the other one."""
    flip = ((0, 1), (1, 0))
    small = DeepModel((2, 2, 2), (flip, flip), (symmetric(2),))
    large = DeepModel((2, 3, 2), (flip, ((0, 1, 0), (1, 0, 1))), (symmetric(3),))
    include, project = ((0, 1), (0, 1), (0, 1)), ((0, 1), (0, 1, 0), (0, 1))
    lift = (tuple(zip(flip, flip)), tuple(zip(flip, large.parameters[1])))
    return Submodel(large, small, include, project, lift), flip, flip


@cache
def _regular(group: Group) -> Action:
    """G acting on itself from the left."""
    return tuple(tuple(group.index(group.product(g, h)) for h in group.elements) for g in group.elements)


def coset_example(group: Group, rng: np.random.Generator) -> tuple[Example, list[Action]]:
    """G → G → G/H → G/H' for random subgroups H ⊂ H', hidden points renamed at random; and the action on these.

    All layers are onto, so that θ is identifiable in its smallest model (the chapter's exercise).
    """
    left = _regular(group)
    chosen = [left[0], *(left[i] for i in rng.integers(len(group), size=2))]
    theta, rhos = [], [left]
    names = list(range(len(group)))  # the point of the last set to which each element of G belongs
    for i in range(3):
        H = [p[0] for p in generated(*chosen[: i + 1])]
        cosets = sorted({frozenset(left[g][h] for h in H) for g in range(len(group))}, key=min)
        order = rng.permutation(len(cosets)) if i < 2 else range(len(cosets))
        new = [int(order[next(j for j, coset in enumerate(cosets) if g in coset)]) for g in range(len(group))]
        theta.append(tuple(new[names.index(point)] for point in range(max(names) + 1)))
        names = new
        points = range(len(cosets))
        rhos.append(tuple(tuple(new[left[g][new.index(p)]] for p in points) for g in range(len(group))))
    sizes = tuple(len(rho[0]) for rho in rhos)
    K = [symmetric(n) if n <= 4 else generated(*rho) for n, rho in zip(sizes[1:3], rhos[1:3])]
    model = smallest_model(tuple(theta), sizes, K, rhos[0], rhos[3])
    return Example(model, tuple(theta), rhos[0], rhos[3]), rhos[1:3]


@cache
def plane(group: Group) -> Representation:
    """C_4 or D_4 on the plane: quarter turns, and the mirror x_1 ↦ −x_1."""
    turn, mirror = torch.tensor([[[0.0, -1], [1, 0]], [[-1, 0], [0, 1]]], dtype=torch.float64)
    return representation(group, dict(zip(group.generators, (turn, mirror))))


def hidden_tanh_network(group: Group, generator: torch.Generator) -> DeepMLP:
    """A tanh network 2 → 6 → 6 → 2, equivariant for C_4 or D_4 on the plane, its units renamed and negated at random."""
    rho, hidden = plane(group), _hidden(group)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    network = DeepMLP([normal(6, 2), normal(6, 6), normal(2, 6)], [normal(6), normal(6), normal(2)], "tanh")
    network = symmetrise(network, [rho, hidden, hidden, rho])
    return random_symmetry(network, generator).apply(network)


@cache
def _hidden(group: Group) -> Representation:
    return direct_sum(permutation_representation(group), plane(group))


def with_spares(network: DeepMLP, generator: torch.Generator) -> DeepMLP:
    """The same function with two more units in layer 1: a negated clone of unit 0, and one without outgoing weights."""
    (w1, w2, w3), (b1, b2, b3) = ([p.detach() for p in ps] for ps in (network.weights, network.biases))
    extra = torch.randn(1, w1.shape[1] + 1, generator=generator, dtype=w1.dtype)
    share = torch.rand(1, generator=generator, dtype=w1.dtype)
    w1, b1 = torch.cat([w1, -w1[:1], extra[:, 1:]]), torch.cat([b1, -b1[:1], extra[:, 0]])
    w2 = torch.cat([w2, -share * w2[:, :1], torch.zeros_like(w2[:, :1])], 1)
    w2[:, 0] *= 1 - share
    return DeepMLP([w1, w2, w3], [b1, b2, b3], network.activations)


def layer_errors(network: DeepMLP, rhos: Sequence[Representation], x: torch.Tensor) -> list[float]:
    """For each layer the largest ‖f_i(ρ_{i−1}(g)y) − ρ_i(g)f_i(y)‖ relative to the largest ‖f_i(y)‖.

    y are the first columns of x, of shape (batch, n) with n at least the largest width.
    """
    return [
        equivariance_error(lambda y, i=i: network.layer(i, y), before, after, x[:, : before.dimension])
        for i, (before, after) in enumerate(zip(rhos, rhos[1:]), 1)
    ]


TWO_LAYERS = tuple(itertools.product((1, 2, 3), repeat=3))
THREE_LAYERS = (*itertools.product((1, 2), repeat=4), (2, 3, 2, 2), (2, 2, 3, 2), (3, 2, 2, 3))


@cache
def total(families: tuple[tuple[int, ...], ...]) -> Counter:
    """The census of C_2 and of C_3 over several families of sizes, added up."""
    return sum((census(group, sizes) for group in (cyclic(2), cyclic(3)) for sizes in families), Counter())


@cache
def all_unions() -> tuple[int, int]:
    """Theorem 4.1 on every two-layer model with at most 2 points a set, every Θ_1 and Θ_L closed under C_2, every K_1.

    The numbers of models, and of pairs (model, θ) that satisfy the hypotheses.
    """
    group, models, satisfied = cyclic(2), 0, 0

    def closed(maps: list[Map], move) -> list[tuple[Map, ...]]:
        orbits = sorted({tuple(sorted(move(f))) for f in maps})
        return [sum(some, ()) for n in range(1, len(orbits) + 1) for some in itertools.combinations(orbits, n)]

    for sizes in itertools.product((1, 2), repeat=3):
        for rho_in, rho_out in itertools.product(actions(group, symmetric(sizes[0])), actions(group, symmetric(sizes[2]))):
            first = closed(all_maps(*sizes[:2]), lambda f: {compose(f, inverse(a)) for a in rho_in})
            last = closed(all_maps(*sizes[1:]), lambda f: {compose(b, f) for b in rho_out})
            for parameters in itertools.product(first, last, subgroups(sizes[1])):
                model = DeepModel(sizes, parameters[:2], parameters[2:])
                models += 1
                for theta in model:
                    if equivariant(function(theta), rho_in, rho_out) and identifiable(model, theta):
                        satisfied += 1
                        found = latent_actions(model, theta, rho_in, rho_out)
                        oracle = all_latent_actions(group, theta, rho_in, rho_out, model.symmetries)
                        if oracle != [found]:
                            raise ClaimFailed(f"Theorem 4.1 fails for θ = {theta} in {model}, {rho_in}, {rho_out}")
    return models, satisfied


def evidence(seed: int) -> Iterator[Evidence]:
    for layers, families in (("two", TWO_LAYERS), ("three", THREE_LAYERS)):
        counts = total(families)
        satisfied = counts[True, True, True, True, True]
        require(not counts[True, True, True, False, False] + counts[True, True, True, False, True], "a latent action is missing")
        yield Evidence(
            "exact",
            f"{layers} layers on at most 3 points, C₂ and C₃, every θ, every K_i: one latent action wherever the hypotheses hold",
            f"{sum(counts.values()):,} parameters in models, {satisfied:,} satisfy the hypotheses, 0 exceptions",
        )
    models, satisfied = all_unions()
    yield Evidence(
        "exact",
        "at most 2 points, every parameter set that is closed under C₂",
        f"{models:,} models, {satisfied:,} identifiable equivariant parameters, 0 exceptions",
    )

    rng = np.random.default_rng(seed)
    hidden = []
    for group in (symmetric_group(3), dihedral(4), cyclic(6)):
        example, planted = coset_example(group, rng)
        require(all(example.hypotheses().values()), f"{group.name}: hypotheses {example.hypotheses()}")
        found = latent_actions(example.model, example.theta, example.rho_in, example.rho_out)
        require(found == planted, f"{group.name}: planted {planted}, found {found}")
        require(all(is_action(group, rho) for rho in found), f"{group.name}: no homomorphism")
        hidden.append(f"{group.name} on {len(planted[0][0])} and {len(planted[1][0])} points")
    yield Evidence("exact", "planted actions on random cosets, points renamed, found from θ alone", "; ".join(hidden))

    rho, alpha, star, small = _extension(rng)
    for g, h in itertools.product(range(4), repeat=2):
        require((rho[g] @ rho[h] == rho[(g + h) % 4]).all(), "αρ̃α* + id − αα* is no homomorphism")
    require(all((r @ alpha == alpha @ s).all() and (star @ r == s @ star).all() for r, s in zip(rho, small)), "ρ does not extend ρ̃")
    yield Evidence("exact", "ρ = αρ̃α* + (id − αα*) is a representation, ρα = αρ̃ and α*ρ = ρ̃α*", "integer matrices, C₄, 16 products")

    network, rhos, x = _spared_instance(seed)
    in_step = reduce(network).embed()
    change = float((network(x[:, :2]) - in_step(x[:, :2])).abs().max() / network(x[:, :2]).abs().max())
    errors = layer_errors(in_step, rhos, x)
    require(max(change, *errors) < 1e-10, f"layer errors {errors}, change of the function {change:.1e}")
    yield Evidence(
        "numeric",
        "tanh network with a clone and an inactive unit: θ' has the same function and equivariant layers",
        f"worst layer {max(errors):.1e}, change of the function {change:.1e}",
    )


@lru_cache(maxsize=1)
def _spared_instance(seed: int) -> tuple[DeepMLP, list[Representation], torch.Tensor]:
    """A C_4-equivariant tanh network with spare units, its representations on all layers, and random points."""
    generator = torch.Generator().manual_seed(seed)
    rho = plane(cyclic(4))
    network = with_spares(hidden_tanh_network(rho.group, generator), generator)
    rhos = [rho, *latent_representations(network, rho, rho), rho]
    return network, rhos, torch.randn(50, 8, generator=generator, dtype=torch.float64)


def _extension(rng: np.random.Generator) -> tuple[list[np.ndarray], np.ndarray, np.ndarray, list[np.ndarray]]:
    """Random integer α (5×2) and α* with α*α = id, C_4 on the plane, and its extension to 5 dimensions."""
    a, x = rng.integers(-3, 4, (3, 2)), rng.integers(-3, 4, (2, 3))
    alpha, star = np.vstack([np.eye(2, dtype=int), a]), np.hstack([np.eye(2, dtype=int) - x @ a, x])
    small = [np.linalg.matrix_power(np.array([[0, -1], [1, 0]]), n) for n in range(4)]
    return [alpha @ s @ star + np.eye(5, dtype=int) - alpha @ star for s in small], alpha, star, small


def controls(seed: int) -> Iterator[Control]:
    group = cyclic(2)
    for dropped in HYPOTHESES:
        example = first_example(dropped)
        expected = {name: name != dropped for name in HYPOTHESES}
        require(example.hypotheses() == expected, f"without {dropped}: {example.hypotheses()}")
        require(not example.actions(group), f"without {dropped} there is a latent action in K_1 after all")
        anywhere = example.actions(group, [symmetric(example.model.sizes[1])])
        require(bool(anywhere) is (dropped == "uniqueness"), f"without {dropped}: {len(anywhere)} actions on V_1")
        where = "none in K_1, though some on V_1" if anywhere else "none on V_1 at all"
        yield Control(dropped, "all other hypotheses hold, and no latent action exists", f"sizes {example.model.sizes}: {where}")

    submodel, rho_in, rho_out = submodel_without_adjunction()
    theta = submodel.beta(next(iter(submodel.small)))
    require(weakly_identifiable(submodel, theta) and has_adjunction(submodel.large, rho_in, rho_out), "not weakly identifiable")
    require(equivariant(function(theta), rho_in, rho_out), "not equivariant")
    require(not has_adjunction(submodel.small, rho_in, rho_out), "the submodel has adjunction")
    require(not all_latent_actions(group, theta, rho_in, rho_out, [symmetric(2)]), "a latent action exists")
    yield Control("adjunction of the submodel", "every θ is identifiable in a submodel with one parameter", "no latent action")

    submodel, rho_in, rho_out = lopsided_submodel()
    theta = next(iter(submodel.large))
    require(weakly_identifiable(submodel, theta) and has_adjunction(submodel.small, rho_in, rho_out), "not weakly identifiable")
    same = [other for other in submodel.large if function(other) == function(theta)]
    none = not any(all_latent_actions(group, other, rho_in, rho_out, [symmetric(3)]) for other in same)
    require(equivariant(function(theta), rho_in, rho_out) and none, "layers of the large model are equivariant")
    yield Control("linear α, α*", "on bare sets the submodel's action need not extend to the large model", f"none of {len(same)} θ' works")

    network, rhos, x = _spared_instance(seed)
    worst = max(layer_errors(network, rhos, x))
    require(worst > 1e-3, f"the layers of θ itself are equivariant to {worst:.1e}")
    yield Control("passing to θ'", "with spare units the layers of θ itself are not equivariant", f"worst layer {worst:.2f}")


CLAIM = Claim(
    id="B-T4.1",
    title="An identifiable equivariant deep model is equivariant layer by layer",
    source="[B], Theorem 4.1 and Remark 4.2",
    hypotheses=(
        "θ identifiable: each θ' of the same function is k·θ for a unique k (or so in a submodel that has adjunction)",
        "adjunction: G acts on Θ_1 and Θ_L as on input and output",
        "f(gx; θ) = g f(x; θ) for all g and x",
        "for equivariant layers of the large model: α, α* linear, and θ' with layers α_i f̃_i α*_{i−1} available",
    ),
    uses=("B-D1", "B-D2", "B-D3", "B-D4"),
    chapter="equivariance/theorem",
    evidence=evidence,
    controls=controls,
)
