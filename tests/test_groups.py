"""Groups against SymPy, representations against the axioms, images against torch's own moves."""

import pytest
import torch
from sympy.combinatorics import Permutation

from samefn.groups import (
    Representation,
    cyclic,
    dihedral,
    direct_sum,
    group,
    on_images,
    permutation_representation,
    representation,
    reynolds,
    symmetric,
    trivial,
)

torch.set_default_dtype(torch.float64)

GROUPS = [*(cyclic(n) for n in range(1, 13)), *(dihedral(n) for n in (3, 4, 5)), *(symmetric(n) for n in (1, 2, 3, 4))]


@pytest.mark.parametrize("g", GROUPS, ids=lambda g: g.name)
def test_group_axioms(g):
    elements = set(g.elements)
    identity = g.elements[0]
    assert len(elements) == len(g) and identity.is_Identity
    for a in g.elements:
        assert g.product(a, identity) == a == g.product(identity, a)
        assert sum(g.product(a, b) == identity for b in g.elements) == 1
        assert {g.product(a, b) for b in g.elements} == elements


@pytest.mark.parametrize(("g", "order"), [(cyclic(12), 12), (dihedral(4), 8), (symmetric(4), 24), (symmetric(1), 1)])
def test_orders(g, order):
    assert len(g) == order


def test_product_acts_from_the_right():
    g = symmetric(3)
    a, b = Permutation([1, 0, 2]), Permutation([0, 2, 1])
    assert all(g.product(a, b)(i) == a(b(i)) for i in range(3))
    assert g.product(a, b) != g.product(b, a)


def test_index_refuses_strangers():
    assert all(dihedral(4).index(e) == i for i, e in enumerate(dihedral(4).elements))
    with pytest.raises(ValueError, match="is not in C4"):
        cyclic(4).index(Permutation([1, 0, 2, 3]))
    with pytest.raises(ValueError, match="is not in C4"):
        cyclic(4).index(Permutation([1, 0]))


@pytest.mark.parametrize(("make", "bad"), [(cyclic, 0), (dihedral, 2), (symmetric, True), (cyclic, 2.0)])
def test_orders_that_cannot_be(make, bad):
    with pytest.raises(ValueError, match="n must be an integer of at least"):
        make(bad)


@pytest.mark.parametrize("g", GROUPS, ids=lambda g: g.name)
def test_homomorphism_for_all_pairs(g):
    """The constructor checks pairs with a generator only; all pairs must follow."""
    points = permutation_representation(g)
    for rho in (trivial(g, 3), points, direct_sum(points, trivial(g), points)):
        for a in g.elements:
            for b in g.elements:
                torch.testing.assert_close(rho(g.product(a, b)), rho(a) @ rho(b))


@pytest.mark.parametrize("g", [g for g in GROUPS if len(g) > 1], ids=lambda g: g.name)
@pytest.mark.parametrize("which", [0, 1, -1])
def test_one_wrong_matrix_is_noticed(g, which):
    matrices = permutation_representation(g).matrices.clone()
    matrices[which, 0] *= -1
    with pytest.raises(ValueError, match="homomorphism"):
        Representation(g, matrices)


def test_antihomomorphism_is_noticed():
    """ρ(g)⁻¹ in place of ρ(g) passes for commutative groups only: mind the inverse."""
    inverse = lambda g: torch.linalg.inv(permutation_representation(g).matrices)  # noqa: E731
    assert Representation(cyclic(5), inverse(cyclic(5))).violation()[0] < 1e-12
    with pytest.raises(ValueError, match="homomorphism"):
        Representation(symmetric(3), inverse(symmetric(3)))


def test_representation_refuses_bad_input():
    g = cyclic(3)
    with pytest.raises(TypeError, match="floating"):
        Representation(g, torch.eye(2, dtype=torch.long).repeat(3, 1, 1))
    with pytest.raises(ValueError, match=r"shape \(3, n, n\), got \(2, 2, 2\)"):
        Representation(g, torch.eye(2).repeat(2, 1, 1))
    with pytest.raises(ValueError, match="homomorphism"):
        Representation(g, torch.full((3, 2, 2), float("nan")))
    with pytest.raises(ValueError, match="missing"):
        representation(dihedral(4), {dihedral(4).generators[0]: torch.eye(2)})
    with pytest.raises(ValueError, match="homomorphism"):
        representation(g, {g.generators[0]: -torch.eye(2)})  # its cube is not the identity


def test_sign_representation():
    g = symmetric(4)
    rho = representation(g, {p: torch.tensor([[float(p.signature())]]) for p in g.generators})
    assert all(rho(p).item() == p.signature() for p in g.elements)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_images_move_as_torch_moves_them(size):
    image = torch.randn(size, size, generator=torch.Generator().manual_seed(0))
    mirror, turn = torch.flip(image, (1,)), torch.rot90(image)
    for g, moves in ((cyclic(2), [mirror]), (cyclic(4), [turn]), (dihedral(4), [turn, mirror])):
        rho = on_images(g, size)
        for generator, moved in zip(g.generators, moves):
            assert torch.equal((rho(generator) @ image.flatten()).view(size, size), moved)
    with pytest.raises(ValueError, match="C2, C4 or D4, got C3"):
        on_images(cyclic(3), size)


def test_direct_sum_refuses_different_groups():
    with pytest.raises(ValueError, match="one and the same group"):
        direct_sum(trivial(cyclic(2)), trivial(cyclic(3)))
    with pytest.raises(ValueError, match="one and the same group"):
        direct_sum()


@pytest.mark.parametrize("g", [cyclic(4), dihedral(4), symmetric(4)], ids=lambda g: g.name)
def test_reynolds_average(g):
    rho = permutation_representation(g)
    sign = representation(g, {p: torch.tensor([[float(p.signature())]]) for p in g.generators})
    rho_out = direct_sum(rho, sign)
    w = torch.randn(len(rho_out(g.elements[0])), rho.dimension, generator=torch.Generator().manual_seed(1))
    f = lambda x: torch.tanh(x @ w.T)  # noqa: E731
    average = reynolds(f, rho, rho_out)
    x = torch.randn(7, rho.dimension, generator=torch.Generator().manual_seed(2))
    for e in g.elements:
        torch.testing.assert_close(average(x @ rho(e).T), average(x) @ rho_out(e).T)
    torch.testing.assert_close(reynolds(average, rho, rho_out)(x), average(x))
    assert not torch.allclose(average(x), f(x))
    with pytest.raises(ValueError, match="one group"):
        reynolds(f, rho, trivial(cyclic(7)))


def test_any_permutation_group():
    from sympy.combinatorics.named_groups import AlternatingGroup

    g = group("A4", AlternatingGroup(4))
    assert len(g) == 12
    assert permutation_representation(g).violation()[0] == 0
