"""Finite groups, their representations by matrices, and averages over them.

Elements are SymPy permutations; ``gh`` means "first h, then g", as for maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from sympy.combinatorics import Permutation, PermutationGroup
from sympy.combinatorics.named_groups import CyclicGroup, DihedralGroup, SymmetricGroup
from torch import Tensor


@dataclass(frozen=True)
class Group:
    """A finite group as permutations of points, its elements listed with the identity first."""

    name: str
    elements: tuple[Permutation, ...]
    generators: tuple[Permutation, ...]

    def __len__(self) -> int:
        return len(self.elements)

    @cached_property
    def _positions(self) -> dict[tuple[int, ...], int]:
        return {tuple(element.array_form): i for i, element in enumerate(self.elements)}

    @cached_property
    def _products(self) -> dict[Permutation, list[int]]:
        """For each generator g the positions of all gh."""
        return {g: [self.index(self.product(g, h)) for h in self.elements] for g in self.generators}

    def index(self, element: Permutation) -> int:
        """Position of an element; ValueError if it is not in the group."""
        try:
            return self._positions[tuple(element.array_form)]
        except KeyError:
            raise ValueError(f"element {element} is not in {self.name}") from None

    def product(self, g: Permutation, h: Permutation) -> Permutation:
        """gh: first h, then g (SymPy writes the one that acts first on the left)."""
        return h * g


def group(name: str, permutations: PermutationGroup) -> Group:
    """A SymPy permutation group as a :class:`Group`."""
    identity = permutations.identity
    others = sorted((p for p in permutations.elements if p != identity), key=lambda p: p.array_form)
    return Group(name, (identity, *others), tuple(permutations.generators))


def cyclic(n: int) -> Group:
    """C_n, the rotations of a regular n-gon; one generator.  Raises ValueError unless n ≥ 1."""
    return group(f"C{_order(n, 1)}", CyclicGroup(n))


def dihedral(n: int) -> Group:
    """D_n, the 2n symmetries of a regular n-gon; generators rotation, reflection.  Raises ValueError unless n ≥ 3."""
    return group(f"D{_order(n, 3)}", DihedralGroup(n))


def symmetric(n: int) -> Group:
    """S_n, all permutations of n points.  Raises ValueError unless n ≥ 1."""
    return group(f"S{_order(n, 1)}", SymmetricGroup(n))


def _order(n: int, least: int) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or n < least:
        raise ValueError(f"n must be an integer of at least {least}, got {n!r}")
    return n


@dataclass(frozen=True, eq=False)
class Representation:
    """A homomorphism from a group to invertible matrices: ``matrices[i]`` stands for ``group.elements[i]``.

    ``matrices`` has shape (order, n, n) and a floating dtype.  Raises ValueError, naming the
    elements, unless the identity goes to I and every product to the product, to 1e-8.
    """

    group: Group
    matrices: Float[Tensor, "order n n"]

    def __post_init__(self) -> None:
        m = self.matrices
        if not isinstance(m, Tensor) or not m.is_floating_point():
            raise TypeError("matrices must be a floating tensor")
        if m.dim() != 3 or m.shape[0] != len(self.group) or m.shape[1] != m.shape[2]:
            raise ValueError(f"matrices must have shape ({len(self.group)}, n, n), got {tuple(m.shape)}")
        violation, g, h = self.violation()
        if not violation <= 1e-8:
            raise ValueError(f"matrices must be a homomorphism, but at g = {g}, h = {h} it is off by {violation:.1e}")

    def violation(self) -> tuple[float, Permutation, Permutation]:
        """The largest ‖ρ(gh) − ρ(g)ρ(h)‖ relative to ‖ρ(g)‖‖ρ(h)‖ over all pairs (I − ρ(e) included), and where."""
        identity = self.group.elements[0]
        eye = torch.eye(self.dimension, dtype=self.matrices.dtype)
        worst = (float((self.matrices[0] - eye).abs().max()), identity, identity)
        norms = self.matrices.flatten(1).norm(dim=1)
        for g in self.group.generators:
            gaps = (self.matrices[self.group._products[g]] - self(g) @ self.matrices).flatten(1).norm(dim=1) / (self(g).norm() * norms)
            at = int(gaps.argmax())
            if not gaps[at] <= worst[0]:
                worst = (float(gaps[at]), g, self.group.elements[at])
        return worst

    @property
    def dimension(self) -> int:
        return self.matrices.shape[1]

    def __call__(self, element: Permutation) -> Float[Tensor, "n n"]:
        return self.matrices[self.group.index(element)]


def representation(group: Group, generators: Mapping[Permutation, Float[Tensor, "n n"]]) -> Representation:
    """The representation with given matrices for the group's generators, multiplied out.

    Raises ValueError if a generator is missing or the matrices do not satisfy the group's relations.
    """
    missing = [g for g in group.generators if g not in generators]
    if missing:
        raise ValueError(f"generators must hold a matrix for every generator of {group.name}, missing {missing}")
    first = generators[group.generators[0]]
    found = {0: torch.eye(len(first), dtype=first.dtype)}
    frontier = [0]
    while frontier:
        h = frontier.pop()
        for g in group.generators:
            product = group._products[g][h]
            if product not in found:
                found[product] = generators[g] @ found[h]
                frontier.append(product)
    return Representation(group, torch.stack([found[i] for i in range(len(group))]))


def trivial(group: Group, n: int = 1) -> Representation:
    """Every element acts on R^n as the identity."""
    return Representation(group, torch.eye(n, dtype=torch.float64).repeat(len(group), 1, 1))


def permutation_representation(group: Group) -> Representation:
    """ρ(g) e_i = e_{g(i)} on the points that the group permutes."""
    n = group.elements[0].size
    matrices = torch.zeros(len(group), n, n, dtype=torch.float64)
    for k, g in enumerate(group.elements):
        matrices[k, g.array_form, torch.arange(n)] = 1
    return Representation(group, matrices)


def direct_sum(*representations: Representation) -> Representation:
    """Block-diagonal: acts on the concatenation of the spaces.  Raises ValueError for different groups."""
    if not representations or any(r.group != representations[0].group for r in representations):
        raise ValueError("representations must belong to one and the same group")
    matrices = [torch.block_diag(*(r.matrices[i] for r in representations)) for i in range(len(representations[0].group))]
    return Representation(representations[0].group, torch.stack(matrices))


def on_images(group: Group, size: int) -> Representation:
    """C_2 (left-right mirror), C_4 (quarter turns) or D_4 (both) on images of size × size pixels, flattened.

    Generators act by ``torch.rot90`` and ``torch.fliplr``.  Raises ValueError for any other group.
    """
    basis = torch.eye(size * size, dtype=torch.float64).view(-1, size, size)
    turn = torch.rot90(basis, dims=(1, 2)).reshape(size * size, -1).T
    mirror = torch.flip(basis, dims=(2,)).reshape(size * size, -1).T
    actions = {"C2": (mirror,), "C4": (turn,), "D4": (turn, mirror)}
    if group.name not in actions:
        raise ValueError(f"group must be C2, C4 or D4, got {group.name}")
    return representation(group, dict(zip(group.generators, actions[group.name])))


def reynolds(
    f: Callable[[Tensor], Tensor], rho_in: Representation, rho_out: Representation
) -> Callable[[Tensor], Tensor]:
    """The average x ↦ mean over g of ρ_out(g)⁻¹ f(ρ_in(g) x): equivariant, and f itself if f already is.

    Raises ValueError if the representations belong to different groups.
    """
    if rho_in.group != rho_out.group:
        raise ValueError(f"rho_in and rho_out must belong to one group, got {rho_in.group.name} and {rho_out.group.name}")
    inverses = torch.linalg.inv(rho_out.matrices)

    def average(x: Tensor) -> Tensor:
        return torch.stack([f(x @ a.T) @ b.T for a, b in zip(rho_in.matrices, inverses)]).mean(0)

    return average
