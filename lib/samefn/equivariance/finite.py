"""Deep models on finite sets: [B], Definitions 1 to 3 and Theorem 4.1, where everything can be tried.

V_i is {0, …, n_i − 1}.  A map V_{i−1} → V_i is the tuple of its values, a permutation too, and a
parameter is the map that it stands for: parameters with the same map play the same part in every
definition.  An action of a group on V_i is a tuple of permutations, one for each of its elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import torch

from ..arguments import Natural
from .groups import Group, compose, generated, inverse, symmetric
from .layerwise import NotEquivariant, NotIdentifiable

FiniteMap = tuple[int, ...]
Parameter = tuple[FiniteMap, ...]  # θ = (θ_1, …, θ_L), and an element of K_1 × … × K_{L−1} likewise
FiniteAction = tuple[FiniteMap, ...]

__all__ = [
    "DeepModel",
    "FiniteAction",
    "FiniteMap",
    "Parameter",
    "Submodel",
    "act",
    "actions",
    "all_latent_actions",
    "all_maps",
    "compose",
    "equivariant",
    "function",
    "inverse",
    "is_action",
    "random_parameter",
    "random_squares",
    "subgroups",
    "transport",
]


def all_maps(n: Natural, m: Natural) -> list[FiniteMap]:
    """The mⁿ maps from n points to m points.

    >>> from samefn.equivariance.finite import all_maps
    >>> all_maps(2, 2)
    [(0, 0), (0, 1), (1, 0), (1, 1)]
    """
    return list(itertools.product(range(m), repeat=n))


@cache
def subgroups(n: int) -> tuple[Group, ...]:
    """Every subgroup of Sym(n), smallest first, for n ≤ 4, where each has two generators.  Raises
    ValueError otherwise.

    >>> from samefn.equivariance.finite import subgroups
    >>> [len(group) for group in subgroups(3)]
    [1, 2, 2, 2, 3, 6]
    """
    if not 1 <= n <= 4:
        raise ValueError(f"n must be between 1 and 4, got {n}")
    pairs = itertools.combinations_with_replacement(symmetric(n).elements, 2)
    found = {group.elements: group for group in (generated(p, q) for p, q in pairs)}
    return tuple(sorted(found.values(), key=lambda group: (len(group), group.elements)))


def is_action(group: Group, permutations: Sequence[FiniteMap]) -> bool:
    """Whether one permutation for each element of the group makes a homomorphism.

    Raises ValueError unless these are permutations of the same points, as many as the group has elements.

    >>> from samefn.equivariance.finite import is_action
    >>> from samefn.equivariance.groups import cyclic
    >>> is_action(cyclic(2), [(0, 1, 2), (1, 0, 2)]), is_action(cyclic(2), [(0, 1, 2), (1, 2, 0)])
    (True, False)
    """
    _require_permutations("permutations", permutations, len(permutations[0]) if permutations else 0)
    if len(permutations) != len(group):
        raise ValueError(f"permutations must be {len(group)}, one for each element, got {len(permutations)}")
    return _is_homomorphism(group, permutations)


def _require_permutations(name: str, permutations: Sequence[FiniteMap], n: int) -> None:
    points = list(range(n))
    if not permutations or any(sorted(p) != points for p in permutations):
        raise ValueError(f"{name} must hold permutations of {n} points, got {permutations}")


def _require_actions(theta: Parameter, rho_in: FiniteAction, rho_out: FiniteAction) -> None:
    """Of one group, on the points that θ maps from (as many as it has values there) and to (or more)."""
    _require_permutations("rho_in", rho_in, len(theta[0]))
    _require_permutations("rho_out", rho_out, len(rho_out[0]) if rho_out else 0)
    if len(rho_in) != len(rho_out) or not set(theta[-1]) <= set(rho_out[0]):
        raise ValueError(
            f"rho_out must move the values {theta[-1]} by as many permutations as rho_in has, {len(rho_in)}, "
            f"got {rho_out}"
        )


def _is_homomorphism(group: Group, permutations: Sequence[FiniteMap]) -> bool:
    generators = [group.index(g) for g in group.generators]
    return list(permutations[0]) == sorted(permutations[0]) and all(
        permutations[gh] == compose(permutations[g], permutations[h])
        for g in generators
        for h, gh in enumerate(group.table[g])
    )


@cache
def actions(group: Group, within: Group) -> tuple[FiniteAction, ...]:
    """Every homomorphism from one group to another, as an action on the points of the latter.

    >>> from samefn.equivariance.finite import actions
    >>> from samefn.equivariance.groups import cyclic, symmetric
    >>> len(actions(cyclic(2), symmetric(3)))  # trivial, and three swaps
    4
    """
    images = itertools.product(within.elements, repeat=len(group.generators))
    candidates = (_multiplied_out(group, some, within.elements[0]) for some in images)
    # in order, each once, though a generator may be the identity
    return tuple(dict.fromkeys(action for action in candidates if _is_homomorphism(group, action)))


def _multiplied_out(group: Group, images: Sequence[FiniteMap], identity: FiniteMap) -> FiniteAction:
    """What each element does if the generators do ``images`` and it is reached by products; no
    homomorphism yet.
    """
    action, reached = {0: identity}, [0]
    for h in reached:  # grows while it is read
        for g, image in zip(group.generators, images, strict=True):
            gh = group.table[group.index(g)][h]
            if gh not in action:
                action[gh] = compose(image, action[h])
                reached.append(gh)
    return tuple(action[i] for i in range(len(group)))


@dataclass(frozen=True)
class DeepModel:
    """Sets of ``sizes`` n_0, …, n_L, parameter sets Θ_1, …, Θ_L, and groups K_1, …, K_{L−1} of permutations.

    Raises ValueError, naming the layer, if a parameter is no map between its sets or a K_i permutes
    another set.
    Source: [B], Definition 1.

    >>> from samefn.equivariance.finite import DeepModel, all_maps
    >>> from samefn.equivariance.groups import symmetric
    >>> maps = tuple(all_maps(2, 2))
    >>> model = DeepModel((2, 2, 2), (maps, maps), (symmetric(2),))
    >>> theta = ((0, 1), (1, 0))
    >>> model.identifiable(theta), len(list(model))
    (True, 16)
    """

    sizes: tuple[int, ...]
    parameters: tuple[tuple[FiniteMap, ...], ...]
    symmetries: tuple[Group, ...]

    def __post_init__(self) -> None:
        depth = len(self.sizes) - 1
        if len(self.parameters) != depth or len(self.symmetries) != depth - 1:
            raise ValueError(
                f"sizes of {depth + 1} sets need {depth} parameter sets and {depth - 1} groups, "
                f"got {len(self.parameters)} and {len(self.symmetries)}"
            )
        for i, (n, m, maps) in enumerate(zip(self.sizes, self.sizes[1:], self.parameters, strict=False), 1):
            points = set(range(m))
            if not maps or any(
                len(f) != n or not points.issuperset(f) or float in map(type, f) for f in maps
            ):
                raise ValueError(f"parameters of layer {i} must be maps from {n} to {m} points, got {maps}")
        for i, (n, group) in enumerate(zip(self.sizes[1:], self.symmetries, strict=False), 1):
            if len(group.elements[0]) != n:
                raise ValueError(
                    f"symmetries of layer {i} must be a group of permutations of {n} points, got {group}"
                )

    def __iter__(self) -> Iterator[Parameter]:
        """All θ."""
        return itertools.product(*self.parameters)

    def __contains__(self, theta: Parameter) -> bool:
        depth = len(self.parameters)
        return len(theta) == depth and all(f in maps for f, maps in zip(theta, self.parameters, strict=True))

    def relating(self, theta: Parameter, other: Parameter) -> list[Parameter]:
        """Every k ∈ K_1 × … × K_{L−1} with k·θ = ``other``."""
        partial: list[Parameter] = [()]
        for f, g, group in zip(theta, other, self.symmetries, strict=False):
            partial = [
                (*k, after)
                for k in partial
                for after in group.elements
                if compose(after, f) == (compose(g, k[-1]) if k else g)
            ]
        return [k for k in partial if (compose(other[-1], k[-1]) if k else other[-1]) == theta[-1]]

    def obstructions(self, theta: Parameter) -> list[tuple[Parameter, list[Parameter]]]:
        """Every θ' with the function of θ that not exactly one k takes θ to, with these k.  Raises
        ValueError if θ ∉ Θ.
        """
        if theta not in self:
            raise ValueError(f"theta must be a parameter of the model, got {theta}")
        same = function(theta)
        found = [(other, self.relating(theta, other)) for other in self if function(other) == same]
        return [(other, k) for other, k in found if len(k) != 1]

    def identifiable(self, theta: Parameter) -> bool:
        """[B], Definition 2: each θ' with f(·; θ') = f(·; θ) is k·θ for a unique k."""
        return not self.obstructions(theta)

    def has_adjunction(self, rho_in: FiniteAction, rho_out: FiniteAction) -> bool:
        """Whether G acts on Θ_1 by f ↦ f(g⁻¹ ·) and on Θ_L by f ↦ g f: whether these sets are closed under
        it.
        """
        _require_permutations("rho_in", rho_in, self.sizes[0])
        _require_permutations("rho_out", rho_out, self.sizes[-1])
        first, last = self.parameters[0], self.parameters[-1]
        return all(compose(f, inverse(a)) in first for a in rho_in for f in first) and all(
            compose(b, f) in last for b in rho_out for f in last
        )

    def latent_actions(
        self, theta: Parameter, rho_in: FiniteAction, rho_out: FiniteAction
    ) -> list[FiniteAction]:
        """ρ_i(g) = k_i(g)⁻¹ for the unique k(g) with k(g)·θ = θ^g ([B], proof of Theorem 4.1).

        Raises ValueError if the actions have different lengths or some θ^g is not in the model (no
        adjunction), :class:`NotEquivariant` if f(·; θ) is not equivariant, :class:`NotIdentifiable` if not
        exactly one k takes θ to θ^g.
        """
        if theta not in self:
            raise ValueError(f"theta must be a parameter of the model, got {theta}")
        _require_actions(theta, rho_in, rho_out)
        if not equivariant(function(theta), rho_in, rho_out):
            raise NotEquivariant(f"f(·; θ) = {function(theta)} is not equivariant")
        found = []
        for a, b in zip(rho_in, rho_out, strict=True):
            moved = transport(theta, a, b)
            if moved not in self:
                raise ValueError(f"no adjunction: the model must contain θ^g = {moved}")
            k = self.relating(theta, moved)
            if len(k) != 1:
                raise NotIdentifiable(f"{len(k)} symmetries take θ to θ^g = {moved}")
            found.append([inverse(k_i) for k_i in k[0]])
        return [tuple(rho) for rho in zip(*found, strict=True)]


def function(theta: Parameter) -> FiniteMap:
    """f(·; θ) = f_L ∘ … ∘ f_1.

    >>> from samefn.equivariance.finite import function
    >>> function(((1, 0), (2, 0)))  # first swap, then 0 ↦ 2, 1 ↦ 0
    (0, 2)
    """
    result = theta[0]
    for f in theta[1:]:
        result = compose(f, result)
    return result


def act(k: Sequence[FiniteMap], theta: Parameter) -> Parameter:
    """k·θ, whose layers are k_i f_i(k_{i−1}⁻¹ · ; θ_i) with k_0 and k_L the identity.

    Raises ValueError unless k has one permutation for each hidden layer of θ.

    >>> from samefn.equivariance.finite import act, function
    >>> theta = ((0, 1), (2, 0))
    >>> other = act([(1, 0)], theta)
    >>> other, function(other) == function(theta)
    (((1, 0), (0, 2)), True)
    """
    if len(k) != len(theta) - 1 or any(len(k_i) != len(f) for k_i, f in zip(k, theta[1:], strict=True)):
        raise ValueError(f"k must hold a permutation of the points of each hidden layer, got {k}")
    moved = [*(compose(k_i, f) for k_i, f in zip(k, theta, strict=False)), theta[-1]]
    return (moved[0], *(compose(f, inverse(k_i)) for k_i, f in zip(k, moved[1:], strict=True)))


def transport(theta: Parameter, a: FiniteMap, b: FiniteMap) -> Parameter:
    """θ^g, the layers f_1(a⁻¹ ·), f_2, …, b f_L, where g acts on the input by a and on the output by b.

    >>> from samefn.equivariance.finite import transport
    >>> transport(((0, 1), (0, 1)), a=(1, 0), b=(1, 0))
    ((1, 0), (1, 0))
    """
    moved = (compose(theta[0], inverse(a)), *theta[1:])
    return (*moved[:-1], compose(b, moved[-1]))


def equivariant(f: FiniteMap, before: FiniteAction, after: FiniteAction) -> bool:
    """Whether f(gx) = g f(x) for all g and x.

    >>> from samefn.equivariance.finite import equivariant
    >>> swap = ((0, 1), (1, 0))
    >>> equivariant((1, 0), swap, swap), equivariant((0, 0), swap, swap)
    (True, False)
    """
    return all(compose(f, a) == compose(b, f) for a, b in zip(before, after, strict=True))


def all_latent_actions(
    group: Group,
    theta: Parameter,
    rho_in: FiniteAction,
    rho_out: FiniteAction,
    within: Sequence[Group],
) -> list[list[FiniteAction]]:
    """Every ρ_1, …, ρ_{L−1}, ρ_i a homomorphism to ``within[i − 1]``, that makes all layers equivariant:
    brute force.  Raises ValueError where the sizes do not fit.

    >>> from samefn.equivariance.finite import all_latent_actions
    >>> from samefn.equivariance.groups import cyclic, symmetric
    >>> swap, theta = ((0, 1), (1, 0)), ((1, 0), (0, 1))
    >>> all_latent_actions(cyclic(2), theta, swap, swap, [symmetric(2)])
    [[((0, 1), (1, 0))]]
    """
    _require_actions(theta, rho_in, rho_out)
    if [len(hidden.elements[0]) for hidden in within] != [len(f) for f in theta[1:]]:
        raise ValueError(f"within must hold a group of permutations of each hidden layer, got {within}")
    partial = [[rho_in]]
    for f, hidden in zip(theta, within, strict=False):
        found = actions(group, hidden)
        partial = [[*rhos, rho] for rhos in partial for rho in found if equivariant(f, rhos[-1], rho)]
    return [rhos[1:] for rhos in partial if equivariant(theta[-1], rhos[-1], rho_out)]


@dataclass(frozen=True)
class Submodel:
    """A smaller model inside a larger one: α_i = ``include[i]``, α*_i = ``project[i]``, β_i = ``lift[i]``
    as pairs (θ̃_i, θ_i).

    ``include`` and ``project`` run over i = 0, …, L.  Raises ValueError unless α*_i α_i = id, both are the
    identity at i = 0 and L, and α*_i f_i(y; β_i(θ̃_i)) = f̃_i(α*_{i−1} y; θ̃_i) for all y and θ̃_i.
    Source: [B], Definition 3, in the formulation of this book.

    >>> from samefn.equivariance.finite_examples import lopsided_submodel
    >>> submodel, rho_in, rho_out = lopsided_submodel()
    >>> submodel.small.sizes, submodel.large.sizes
    ((2, 2, 2), (2, 3, 2))
    """

    large: DeepModel
    small: DeepModel
    include: tuple[FiniteMap, ...]
    project: tuple[FiniteMap, ...]
    lift: tuple[tuple[tuple[FiniteMap, FiniteMap], ...], ...]

    def __post_init__(self) -> None:
        sets = len(self.small.sizes)
        for name, maps, wanted in (("include", self.include, sets), ("project", self.project, sets)):
            if len(maps) != wanted:
                raise ValueError(f"{name} must hold {wanted} maps, got {len(maps)}")
        if len(self.large.sizes) != sets or len(self.lift) != sets - 1:
            raise ValueError(
                f"large and lift must have the depth {sets - 1} of small, got {len(self.large.sizes) - 1} "
                f"and {len(self.lift)}"
            )
        for i, (alpha, star, n) in enumerate(zip(self.include, self.project, self.small.sizes, strict=True)):
            identity = tuple(range(n))
            if compose(star, alpha) != identity or (i in (0, len(self.include) - 1) and star != identity):
                raise ValueError(
                    f"project must undo include, and both be the identity at the ends; not so at i = {i}"
                )
        squares = zip(self.project, self.project[1:], self.lift, strict=False)
        for i, (before, after, pairs) in enumerate(squares, 1):
            if {f for f, _ in pairs} != set(self.small.parameters[i - 1]):
                raise ValueError(f"lift must be defined on all parameters of layer {i} of the small model")
            large = self.large.parameters[i - 1]
            if any(compose(after, g) != compose(f, before) or g not in large for f, g in pairs):
                raise ValueError(
                    f"the square of layer {i} must commute, with the lifted map in the large model"
                )

    def beta(self, theta: Parameter) -> Parameter:
        """β(θ̃), which has the same function as θ̃."""
        self._require(theta)
        return tuple(dict(pairs)[f] for f, pairs in zip(theta, self.lift, strict=True))

    def embed(self, theta: Parameter) -> Parameter:
        """The layers α_i f̃_i(α*_{i−1} · ; θ̃_i) between the large sets; they need not be parameters of
        the large model.
        """
        self._require(theta)
        steps = zip(self.include[1:], theta, self.project, strict=False)
        return tuple(compose(a, compose(f, s)) for a, f, s in steps)

    def _require(self, theta: Parameter) -> None:
        if theta not in self.small:
            raise ValueError(f"theta must be a parameter of the small model, got {theta}")

    def weakly_identifiable(self, theta: Parameter) -> bool:
        """Whether θ = β(θ̃) for some θ̃ that is identifiable in the submodel."""
        return any(self.beta(small) == theta and self.small.identifiable(small) for small in self.small)


def random_parameter(
    *, onto: bool = False, generator: torch.Generator
) -> tuple[Parameter, Parameter, Parameter]:
    """θ, and two elements of Sym(n_1) × Sym(n_2), on four random sets of 2 to 6 points.

    With ``onto`` all sets are equal and all layers permutations.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.finite import act, function, random_parameter
    >>> theta, k, _ = random_parameter(generator=Draw(0))
    >>> function(act(k, theta)) == function(theta)
    True
    """
    sizes = torch.randint(2, 7, (4,), generator=generator).tolist()
    if onto:
        sizes = sizes[:1] * 4
        theta = tuple(_permutation(n, generator) for n in sizes[1:])
    else:
        theta = tuple(_map(n, m, generator) for n, m in itertools.pairwise(sizes))
    k, other = (tuple(_permutation(n, generator) for n in sizes[1:-1]) for _ in range(2))
    return theta, k, other


def random_squares(
    *, everywhere: bool, generator: torch.Generator
) -> tuple[Parameter, Parameter, tuple[FiniteMap, ...]]:
    """θ̃, θ and α*_0, …, α*_3 with commuting squares, L = 3; with ``everywhere`` False only on values that
    occur.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.finite import function, random_squares
    >>> small, large, stars = random_squares(everywhere=False, generator=Draw(0))
    >>> function(small) == function(large)
    True
    """
    small = torch.randint(2, 5, (4,), generator=generator).tolist()
    large = torch.randint(4, 8, (4,), generator=generator).tolist()
    large[0], large[3] = small[0], small[3]
    inner = (_onto(n, s, generator) for n, s in zip(large[1:3], small[1:3], strict=True))
    stars = (tuple(range(small[0])), *inner, tuple(range(small[3])))
    theta = tuple(_map(n, m, generator) for n, m in itertools.pairwise(small))
    lifted, occurring = [], set(range(large[0]))
    for i, f in enumerate(theta):
        free = _map(large[i], large[i + 1], generator)
        square = [_above(stars[i + 1], f[stars[i][y]], generator) for y in range(large[i])]
        bound = [everywhere or y in occurring for y in range(large[i])]
        lifted.append(tuple(s if b else v for s, v, b in zip(square, free, bound, strict=True)))
        occurring = {lifted[-1][y] for y in occurring}
    return theta, tuple(lifted), stars


def _map(n: int, m: int, generator: torch.Generator) -> FiniteMap:
    return tuple(torch.randint(m, (n,), generator=generator).tolist())


def _permutation(n: int, generator: torch.Generator) -> FiniteMap:
    return tuple(torch.randperm(n, generator=generator).tolist())


def _onto(n: int, m: int, generator: torch.Generator) -> FiniteMap:
    """A random map of n points onto m ≤ n points."""
    values = [*range(m), *_map(n - m, m, generator)]
    return tuple(values[i] for i in _permutation(n, generator))


def _above(star: FiniteMap, point: int, generator: torch.Generator) -> int:
    """One of the points that ``star`` takes to ``point``."""
    candidates = [y for y, value in enumerate(star) if value == point]
    return candidates[int(torch.randint(len(candidates), (), generator=generator))]
