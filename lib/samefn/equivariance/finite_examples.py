"""Theorem 4.1 of [B] on finite sets: an exhaustive census, and what goes wrong without each hypothesis."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Literal, NamedTuple, get_args

from ..arguments import Count
from . import finite
from .finite import DeepModel, FiniteAction, FiniteMap, Parameter, Submodel
from .groups import Group, cyclic, generated, symmetric
from .layerwise import NotIdentifiable

TWO_LAYERS = tuple(itertools.product((1, 2, 3), repeat=3))
THREE_LAYERS = (*itertools.product((1, 2), repeat=4), (2, 3, 2, 2), (2, 2, 3, 2), (3, 2, 2, 3))
Hypothesis = Literal["existence", "uniqueness", "adjunction, input", "adjunction, output", "equivariance"]
HYPOTHESES: tuple[Hypothesis, ...] = get_args(Hypothesis)


def smallest_model(
    theta: Parameter,
    sizes: Sequence[Count],
    K: Sequence[Group],
    rho_in: FiniteAction,
    rho_out: FiniteAction,
) -> DeepModel:
    """The least model with adjunction that contains θ: the orbits of θ_1 and θ_L, and θ_2, …, θ_{L−1} alone.

    A θ that is identifiable in some model with adjunction is so in this one, which has fewer θ' (L ≥ 2).
    """
    first = {finite.compose(theta[0], finite.inverse(a)) for a in rho_in}
    last = {finite.compose(b, theta[-1]) for b in rho_out}
    parameters = (tuple(sorted(first)), *((f,) for f in theta[1:-1]), tuple(sorted(last)))
    return DeepModel(tuple(sizes), parameters, tuple(K))


class Facts(NamedTuple):
    """What holds of a parameter in its smallest model; the last four are None where f(·; θ) is not
    equivariant.

    ``exists`` and ``unique``: each θ' of that function is k·θ for at least one k, for at most one.
    ``through_K`` and ``anywhere``: some latent action in the K_i, some in the Sym(n_i), makes every layer
    equivariant.
    """

    equivariant: bool
    exists: bool | None = None
    unique: bool | None = None
    through_K: bool | None = None
    anywhere: bool | None = None

    @property
    def satisfies(self) -> bool:
        """All hypotheses of Theorem 4.1; adjunction holds in every smallest model."""
        return bool(self.equivariant and self.exists and self.unique)


@cache
def census(group: Group, sizes: tuple[int, ...]) -> Counter[Facts]:
    """How often each combination of facts holds, over all θ, all actions of G on V_0 and V_L, and all
    groups K_i.

    Each θ stands in its smallest model.  Raises AssertionError if Theorem 4.1 fails anywhere.
    """
    counts: Counter[Facts] = Counter()
    choices = list(itertools.product(*(finite.subgroups(n) for n in sizes[1:-1])))
    ends = [finite.actions(group, symmetric(n)) for n in (sizes[0], sizes[-1])]
    for theta in itertools.product(*map(finite.all_maps, sizes, sizes[1:])):
        for rho_in, rho_out in itertools.product(*ends):
            if finite.equivariant(finite.function(theta), rho_in, rho_out):
                counts.update(_facts(group, theta, sizes, K, rho_in, rho_out) for K in choices)
            else:
                counts[Facts(False)] += len(choices)
    return counts


def _facts(
    group: Group,
    theta: Parameter,
    sizes: tuple[int, ...],
    K: Sequence[Group],
    rho_in: FiniteAction,
    rho_out: FiniteAction,
) -> Facts:
    model = smallest_model(theta, sizes, K, rho_in, rho_out)
    related = [len(k) for _, k in model.obstructions(theta)]
    exists, unique = 0 not in related, all(n <= 1 for n in related)
    anywhere = _everywhere(group, theta, sizes[1:-1], rho_in, rho_out)
    through = [rhos for rhos in anywhere if all(p in k for rho, k in zip(rhos, K, strict=True) for p in rho)]
    if exists and unique and through != [model.latent_actions(theta, rho_in, rho_out)]:
        raise AssertionError(f"Theorem 4.1 fails for θ = {theta}, K = {K}, {rho_in}, {rho_out}")
    return Facts(True, exists, unique, bool(through), bool(anywhere))


@lru_cache(maxsize=1)  # the groups K_i of one θ are tried one after the other
def _everywhere(
    group: Group, theta: Parameter, hidden: tuple[int, ...], rho_in: FiniteAction, rho_out: FiniteAction
) -> list[list[FiniteAction]]:
    """All latent actions in the full symmetric groups of the hidden sets."""
    return finite.all_latent_actions(group, theta, rho_in, rho_out, [symmetric(n) for n in hidden])


@cache
def total(families: tuple[tuple[int, ...], ...]) -> Counter[Facts]:
    """The census of C_2 and of C_3 over several families of sizes, added up."""
    counts: Counter[Facts] = Counter()
    for group, sizes in itertools.product((cyclic(2), cyclic(3)), families):
        counts += census(group, sizes)
    return counts


@dataclass(frozen=True)
class Example:
    """A parameter of a finite model with actions on input and output."""

    model: DeepModel
    theta: Parameter
    rho_in: FiniteAction
    rho_out: FiniteAction

    def hypotheses(self) -> dict[str, bool]:
        """Which hypotheses of Theorem 4.1 hold; identifiability is existence and uniqueness."""
        related = [len(k) for _, k in self.model.obstructions(self.theta)]
        stay = [tuple(range(n)) for n in (self.model.sizes[0], self.model.sizes[-1])]
        values = (
            0 not in related,
            all(n <= 1 for n in related),
            self.model.has_adjunction(self.rho_in, (stay[1],)),
            self.model.has_adjunction((stay[0],), self.rho_out),
            finite.equivariant(finite.function(self.theta), self.rho_in, self.rho_out),
        )
        return dict(zip(HYPOTHESES, values, strict=True))

    def actions(self, group: Group, within: Sequence[Group] | None = None) -> list[list[FiniteAction]]:
        """All latent actions in the groups ``within``, by default the K_i, for which all layers are
        equivariant.
        """
        chosen = within or self.model.symmetries
        return finite.all_latent_actions(group, self.theta, self.rho_in, self.rho_out, chosen)


def examples(group: Group, sizes: tuple[Count, Count, Count], dropped: Hypothesis) -> Iterator[Example]:
    """Every two-layer example of these sizes that has all hypotheses but ``dropped``, and no latent action
    in Sym(n_1).

    Where uniqueness is dropped: none in K_1.  Where adjunction is, Θ_i of that side has the one
    parameter θ_i; otherwise the models are smallest ones.
    """
    ends = itertools.product(*(finite.actions(group, symmetric(sizes[i])) for i in (0, 2)))
    thetas = list(itertools.product(*map(finite.all_maps, sizes, sizes[1:])))
    for (rho_in, rho_out), theta in itertools.product(ends, thetas):
        if finite.equivariant(finite.function(theta), rho_in, rho_out) is (dropped == "equivariance"):
            continue
        for K in finite.subgroups(sizes[1]):
            model = smallest_model(theta, sizes, [K], rho_in, rho_out)
            example = Example(_without_adjunction(model, theta, dropped), theta, rho_in, rho_out)
            within = [K if dropped == "uniqueness" else symmetric(sizes[1])]
            if example.hypotheses() == all_but(dropped) and not example.actions(group, within):
                yield example


def all_but(dropped: Hypothesis) -> dict[str, bool]:
    """All hypotheses true but one."""
    return {name: name != dropped for name in HYPOTHESES}


def _without_adjunction(model: DeepModel, theta: Parameter, dropped: Hypothesis) -> DeepModel:
    """The model with the one parameter θ_i on the side where adjunction is dropped, if it is."""
    if not dropped.startswith("adjunction"):
        return model
    maps, side = list(model.parameters), 0 if dropped.endswith("input") else 1
    maps[side] = (theta[side],)
    return DeepModel(model.sizes, tuple(maps), model.symmetries)


@cache
def first_example(dropped: Hypothesis) -> Example:
    """The first of :func:`examples` for C_2, from the fewest points on; :func:`unsplit` for uniqueness,
    which needs more.
    """
    if dropped == "uniqueness":
        return unsplit()
    families = sorted(
        itertools.product((1, 2, 3), (1, 2, 3), (1, 2, 3)), key=lambda sizes: (sum(sizes), sizes)
    )
    return next(example for sizes in families for example in examples(cyclic(2), sizes, dropped))


def unsplit() -> Example:
    """C_2 swaps input and output, K_1 is generated by (0 1)(2 3 4 5), and two k take θ to θ^g, both of
    order 4.
    """
    flip = ((0, 1), (1, 0))
    theta = ((0, 1), (0, 1, 0, 1, 0, 1))
    K = generated((1, 0, 3, 4, 5, 2))
    return Example(smallest_model(theta, (2, 6, 2), [K], flip, flip), theta, flip, flip)


def submodel_without_adjunction() -> tuple[Submodel, FiniteAction, FiniteAction]:
    """A model with adjunction, and in it the submodel whose parameter sets hold one parameter each.

    Its θ is trivially identifiable in the submodel, the model's function is equivariant, no latent
    action exists.
    """
    rho_in, rho_out = ((0, 1, 2), (0, 2, 1)), ((0,), (0,))
    theta = ((0, 0, 1), (0, 0))
    large = smallest_model(theta, (3, 2, 1), [symmetric(2)], rho_in, rho_out)
    small = DeepModel((3, 2, 1), tuple((f,) for f in theta), (generated((0, 1)),))
    stay = tuple(tuple(range(n)) for n in (3, 2, 1))
    return Submodel(large, small, stay, stay, tuple(((f, f),) for f in theta)), rho_in, rho_out


def lopsided_submodel() -> tuple[Submodel, FiniteAction, FiniteAction]:
    """C_2 swaps the two points of the small latent set; above one of them the large latent set has two
    points, above the other one.
    """
    flip = ((0, 1), (1, 0))
    small = DeepModel((2, 2, 2), (flip, flip), (symmetric(2),))
    large = DeepModel((2, 3, 2), (flip, ((0, 1, 0), (1, 0, 1))), (symmetric(3),))
    include, project = ((0, 1), (0, 1), (0, 1)), ((0, 1), (0, 1, 0), (0, 1))
    lift = tuple(zip(flip, flip, strict=True)), tuple(zip(flip, large.parameters[1], strict=True))
    return Submodel(large, small, include, project, lift), flip, flip


def swallowing_submodel() -> tuple[Submodel, FiniteAction, FiniteAction]:
    """The same model, and in it a submodel with adjunction whose one hidden point has swallowed layer 2.

    Here α*_1 is f_2, f̃_1 is the whole function, and α_1 f̃_1 is no layer of the large model.  Its θ is
    identifiable in the submodel, and no parameter of the large model has a latent action.
    """
    rho_in, rho_out = ((0, 1, 2), (0, 2, 1)), ((0,), (0,))
    first, last = (0, 0, 1), (0, 0)
    large = smallest_model((first, last), (3, 2, 1), [symmetric(2)], rho_in, rho_out)
    small = DeepModel((3, 1, 1), (((0, 0, 0),), ((0,),)), (generated((0,)),))
    include, project = ((0, 1, 2), (0,), (0,)), ((0, 1, 2), last, (0,))
    return Submodel(large, small, include, project, ((((0, 0, 0), first),), (((0,), last),))), rho_in, rho_out


# ---------------------------------------------------------------------------------------------
# Adjunction in the general form, where G acts on all V_i: ``actions`` are ρ_0, …, ρ_L


def _require_one_for_each_set(name: str, given: Sequence[object], theta: Parameter) -> None:
    if len(given) != len(theta) + 1:
        raise ValueError(f"{name} must be one for each of the {len(theta) + 1} sets, got {len(given)}")


def moved_layers(theta: Parameter, moves: Sequence[FiniteMap]) -> Parameter:
    """θ^g in the general form, the layers g f_i g⁻¹, where g acts on V_0, …, V_L by ``moves``."""
    _require_one_for_each_set("moves", moves, theta)
    steps = zip(theta, moves, moves[1:])
    return tuple(
        finite.compose(after, finite.compose(f, finite.inverse(before))) for f, before, after in steps
    )


def general_model(theta: Parameter, K: Sequence[Group], actions: Sequence[FiniteAction]) -> DeepModel:
    """The least model with adjunction in the general form that contains θ: the orbit of each θ_i."""
    _require_one_for_each_set("actions", actions, theta)
    moved = (moved_layers(theta, moves) for moves in zip(*actions, strict=True))
    orbits = tuple(tuple(sorted(set(orbit))) for orbit in zip(*moved, strict=True))
    return DeepModel(tuple(len(rho[0]) for rho in actions), orbits, tuple(K))


def composed_actions(
    model: DeepModel, theta: Parameter, actions: Sequence[FiniteAction]
) -> list[FiniteAction]:
    """ρ_i(g) = k_i(g)⁻¹ g for the unique k(g) with k(g)·θ = θ^g.  Raises NotIdentifiable if not exactly one
    k does that.
    """
    _require_one_for_each_set("actions", actions, theta)
    found = []
    for moves in zip(*actions, strict=True):
        related = model.relating(theta, moved_layers(theta, moves))
        if len(related) != 1:
            raise NotIdentifiable(f"{len(related)} symmetries take θ to θ^g")
        hidden = zip(related[0], moves[1:-1], strict=True)
        found.append([finite.compose(finite.inverse(k), g) for k, g in hidden])
    return [tuple(rho) for rho in zip(*found, strict=True)]


def normalised(K: Group, rho: FiniteAction) -> bool:
    """Whether g K g⁻¹ = K for all g."""
    if any(len(g) != len(K.elements[0]) for g in rho):
        raise ValueError(f"rho must permute the {len(K.elements[0])} points that K permutes, got {rho}")
    return all(finite.compose(g, finite.compose(k, finite.inverse(g))) in K for g in rho for k in K.elements)


def general_cases(
    group: Group, rho_in: FiniteAction, rho_out: FiniteAction, hidden: Count
) -> Iterator[tuple[DeepModel, Parameter, list[FiniteAction]]]:
    """Every two-layer θ through ``hidden`` points with an equivariant function, every action on these, and
    every K_1 that it normalises, for which θ is identifiable.
    """
    sizes = len(rho_in[0]), hidden, len(rho_out[0])
    thetas = itertools.product(*map(finite.all_maps, sizes, sizes[1:]))
    kept = [theta for theta in thetas if finite.equivariant(finite.function(theta), rho_in, rho_out)]
    for rho, K in itertools.product(finite.actions(group, symmetric(hidden)), finite.subgroups(hidden)):
        for theta in kept if normalised(K, rho) else ():
            actions = [rho_in, rho, rho_out]
            model = general_model(theta, [K], actions)
            if model.identifiable(theta):
                yield model, theta, actions


def not_normalised() -> tuple[DeepModel, Parameter, list[FiniteAction]]:
    """C_2 swaps two inputs and two of five hidden points, (3 4), and K_1 is generated by (0 1)(2 3): θ is
    identifiable with an equivariant function, and k(g)⁻¹g = (0 1)(2 3 4) has order 6.
    """
    actions = [((0, 1), (1, 0)), ((0, 1, 2, 3, 4), (0, 1, 2, 4, 3)), ((0,), (0,))]
    theta = ((0, 1), (0, 0, 0, 0, 0))
    return general_model(theta, [generated((1, 0, 3, 2, 4))], actions), theta, actions
