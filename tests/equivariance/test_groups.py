"""Groups against SymPy, representations against the axioms, images against torch's own moves."""

import itertools
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sympy.combinatorics import Permutation as SympyPermutation
from sympy.combinatorics import PermutationGroup
from sympy.combinatorics.named_groups import AlternatingGroup

from samefn.draw import Draw
from samefn.equivariance.groups import (
    Group,
    Representation,
    compose,
    cycles,
    cyclic,
    dihedral,
    generated,
    group,
    inverse,
    on_images,
    permutation_representation,
    representation,
    reynolds,
    symmetric,
    trivial,
)

GROUPS = [
    *(cyclic(n) for n in range(1, 13)),
    *(dihedral(n) for n in (3, 4, 5)),
    *(symmetric(n) for n in (1, 2, 3, 4)),
]
SMALL = [g for g in GROUPS if len(g) <= 12]


def signature(p):
    """The sign of a permutation, counted from its inversions."""
    return (-1) ** sum(a > b for a, b in itertools.combinations(p, 2))


def sign_representation(g):
    return representation(g, {p: torch.tensor([[float(signature(p))]]) for p in g.generators})


permutations = st.integers(1, 6).flatmap(lambda n: st.permutations(range(n)).map(tuple))
several = st.integers(1, 5).flatmap(
    lambda n: st.lists(st.permutations(range(n)).map(tuple), min_size=1, max_size=3)
)


@pytest.mark.parametrize("g", GROUPS, ids=lambda g: g.name)
def test_group_axioms(g):
    elements = set(g.elements)
    identity = g.elements[0]
    assert len(elements) == len(g) and identity == tuple(range(len(identity)))
    for a in g.elements:
        assert g.product(a, identity) == a == g.product(identity, a)
        assert sum(g.product(a, b) == identity for b in g.elements) == 1
        assert {g.product(a, b) for b in g.elements} == elements


@pytest.mark.parametrize(
    ("g", "order"), [(cyclic(12), 12), (dihedral(4), 8), (symmetric(4), 24), (symmetric(1), 1)]
)
def test_orders(g, order):
    assert len(g) == order


def test_product_acts_from_the_right():
    g = symmetric(3)
    a, b = (1, 0, 2), (0, 2, 1)
    assert all(g.product(a, b)[i] == a[b[i]] for i in range(3))
    assert g.product(a, b) != g.product(b, a)


def test_index_refuses_strangers():
    assert all(dihedral(4).index(e) == i for i, e in enumerate(dihedral(4).elements))
    with pytest.raises(ValueError, match="is not in C4"):
        cyclic(4).index((1, 0, 2, 3))
    with pytest.raises(ValueError, match="is not in C4"):
        cyclic(4).index((1, 0))


@pytest.mark.parametrize(("make", "bad"), [(cyclic, 0), (dihedral, 2), (symmetric, True), (cyclic, 2.0)])
def test_orders_that_cannot_be(make, bad):
    with pytest.raises((TypeError, ValueError), match=r"n must be (an integer of )?at least"):
        make(bad)


@pytest.mark.parametrize("g", GROUPS, ids=lambda g: g.name)
def test_homomorphism_for_all_pairs(g):
    """The constructor checks pairs with a generator only; all pairs must follow."""
    points = permutation_representation(g)
    for rho in (trivial(g, 3), points, points + trivial(g) + points):
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
    inverse = lambda g: torch.linalg.inv(permutation_representation(g).matrices)
    assert Representation(cyclic(5), inverse(cyclic(5))).violation()[0] < 1e-12
    with pytest.raises(ValueError, match="homomorphism"):
        Representation(symmetric(3), inverse(symmetric(3)))


def test_representation_refuses_other_types():
    g = cyclic(3)
    for wrong in (torch.eye(2, dtype=torch.long).repeat(3, 1, 1), [[1.0]]):
        with pytest.raises(TypeError, match="floating"):
            Representation(g, wrong)
    for shape in ((3, 2, 1), (3, 2)):
        with pytest.raises(ValueError, match=r"shape \(order, n, n\), got .* of shape \(3, 2"):
            Representation(g, torch.ones(shape))


def test_representation_refuses_bad_input():
    g = cyclic(3)
    with pytest.raises(ValueError, match=r"shape \(3, n, n\), got \(2, 2, 2\)"):
        Representation(g, torch.eye(2).repeat(2, 1, 1))
    with pytest.raises(ValueError, match="homomorphism"):
        Representation(g, torch.full((3, 2, 2), float("nan")))
    with pytest.raises(ValueError, match="missing"):
        representation(dihedral(4), {dihedral(4).generators[0]: torch.eye(2)})
    with pytest.raises(ValueError, match="homomorphism"):
        representation(g, {g.generators[0]: -torch.eye(2)})  # its cube is not the identity


def test_sign_representation():
    rho = sign_representation(symmetric(4))
    assert all(rho(p).item() == signature(p) for p in symmetric(4).elements)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_images_move_as_torch_moves_them(size):
    image = Draw().normal(size, size)
    mirror, turn = torch.flip(image, (1,)), torch.rot90(image)
    for g, moves in ((cyclic(2), [mirror]), (cyclic(4), [turn]), (dihedral(4), [turn, mirror])):
        rho = on_images(g, size)
        for generator, moved in zip(g.generators, moves):
            assert torch.equal((rho(generator) @ image.flatten()).view(size, size), moved)
    with pytest.raises(ValueError, match="C2, C4 or D4, got C3"):
        on_images(cyclic(3), size)


def test_images_that_are_not_square():
    """They have a mirror, but no quarter turns."""
    (mirror,) = on_images(cyclic(2), (2, 3)).matrices[1:]
    assert (mirror @ torch.arange(6.0)).tolist() == [2, 1, 0, 5, 4, 3]
    assert torch.equal(on_images(cyclic(2), (4, 4)).matrices, on_images(cyclic(2), 4).matrices)
    for g in (cyclic(4), dihedral(4)):
        with pytest.raises(ValueError, match=rf"size must be square for {g.name}, .* got \(28, 32\)"):
            on_images(g, (28, 32))


@pytest.mark.parametrize("size", [0, -1, 28.0, True, (3, 0), (3, 2.0), (3,), (3, 3, 3), "3"])
def test_sizes_of_images_are_integers(size):
    with pytest.raises((TypeError, ValueError), match="size must be an integer of at least 1 or a tuple"):
        on_images(cyclic(2), size)


# ---------------------------------------------------------------------------------------------
# Precision, and affine actions


def rotations(n, dtype):
    angle = torch.arange(n, dtype=dtype) * (2 * math.pi / n)
    turns = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()], 1).view(n, 2, 2)
    g = cyclic(n)
    powers = [g.elements[0]]
    for _ in range(n - 1):
        powers.append(g.product(g.generators[0], powers[-1]))
    return g, turns[[powers.index(element) for element in g.elements]]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 12, 16])
def test_rotations_of_any_precision_are_representations(dtype, n):
    g, turns = rotations(n, torch.float64)
    rho = Representation(g, turns.to(dtype))
    assert rho.violation()[0] <= 4 * torch.finfo(dtype).eps
    wrong = turns.clone()
    wrong[1] *= 1 + 200 * max(1e-8, torch.finfo(dtype).eps)
    with pytest.raises(ValueError, match="homomorphism"):
        Representation(g, wrong.to(dtype))


def test_an_affine_action_fixes_its_centre():
    g, turns = rotations(6, torch.float64)
    centre = torch.tensor([1.0, -2])
    rho = Representation(g, turns, centre)
    x = Draw().normal(7, 3, 2)
    for i, element in enumerate(g.elements):
        torch.testing.assert_close(rho.move(i, centre), centre)
        torch.testing.assert_close(
            rho.move(i, x),
            torch.stack([turns[i] @ (row - centre) + centre for row in x.view(-1, 2)]).view(7, 3, 2),
        )
        for j, other in enumerate(g.elements):
            both = rho.move(g.index(g.product(element, other)), x)
            torch.testing.assert_close(rho.move(i, rho.move(j, x)), both)
    assert torch.equal(Representation(g, turns).move(1, x), x @ turns[1].T)
    assert rho.move(1, x.float()).dtype == torch.float32
    for total, wanted in (
        (rho + trivial(g), [1, -2, 0]),
        (trivial(g) + rho, [0, 1, -2]),
        (2 * rho, [1, -2, 1, -2]),
    ):
        assert total.centre.tolist() == wanted
    assert (trivial(g) + trivial(g)).centre is None


def test_a_centre_has_the_dimension_of_the_action():
    g, turns = rotations(3, torch.float64)
    with pytest.raises(ValueError, match=r"centre must be .* with n = 2, got .* \(3,\)"):
        Representation(g, turns, torch.zeros(3))


def test_reynolds_of_an_affine_action():
    g, turns = rotations(5, torch.float64)
    rho, x = Representation(g, turns, torch.tensor([0.5, 3.0])), Draw().normal(9, 2)
    average = reynolds(torch.tanh, rho, rho)
    for i in range(5):
        torch.testing.assert_close(average(rho.move(i, x)), rho.move(i, average(x)))


@pytest.mark.parametrize("g", SMALL, ids=lambda g: g.name)
def test_direct_sums_have_the_blocks_on_the_diagonal(g):
    points, sign = permutation_representation(g), sign_representation(g)
    n, both = points.dimension, points + sign
    assert both.dimension == n + 1
    for e in g.elements:
        assert torch.equal(both(e)[:n, :n], points(e)) and torch.equal(both(e)[n:, n:], sign(e))
        assert not both(e)[:n, n:].any() and not both(e)[n:, :n].any()
    for count in (1, 2, 3):
        added = points
        for _ in range(count - 1):
            added = added + points
        assert torch.equal((count * points).matrices, added.matrices)
    assert torch.equal((2 * (points + sign) + trivial(g)).matrices, (both + both + trivial(g)).matrices)


def test_direct_sum_refuses_different_groups():
    for other in (trivial(cyclic(3)), trivial(generated((1, 0)))):
        with pytest.raises(ValueError, match="a direct sum needs one group, got C2 and"):
            trivial(cyclic(2)) + other
    for count in (0, -1):
        with pytest.raises(ValueError, match=f"count must be at least 1, got {count}"):
            count * trivial(cyclic(2))


@pytest.mark.parametrize("other", [1, torch.eye(1), None, cyclic(2)])
def test_direct_sum_refuses_what_is_no_representation(other):
    with pytest.raises(TypeError):
        trivial(cyclic(2)) + other


@pytest.mark.parametrize("count", [1.0, True, "2", None])
def test_copies_are_counted_by_an_integer(count):
    with pytest.raises(TypeError):
        count * trivial(cyclic(2))
    with pytest.raises(TypeError):
        trivial(cyclic(2)) * 2  # as in the text, the number stands before


@pytest.mark.parametrize("g", [cyclic(4), dihedral(4), symmetric(4)], ids=lambda g: g.name)
def test_reynolds_average(g):
    rho = permutation_representation(g)
    rho_out = rho + sign_representation(g)
    w = Draw(1).normal(len(rho_out(g.elements[0])), rho.dimension)
    f = lambda x: torch.tanh(x @ w.T)
    average = reynolds(f, rho, rho_out)
    x = Draw(2).normal(7, rho.dimension)
    for e in g.elements:
        torch.testing.assert_close(average(x @ rho(e).T), average(x) @ rho_out(e).T)
    torch.testing.assert_close(reynolds(average, rho, rho_out)(x), average(x))
    assert not torch.allclose(average(x), f(x))
    with pytest.raises(ValueError, match="one group"):
        reynolds(f, rho, trivial(cyclic(7)))


def test_any_permutation_group():
    g = group("A4", AlternatingGroup(4))
    assert len(g) == 12
    assert permutation_representation(g).violation()[0] == 0


# ---------------------------------------------------------------------------------------------
# Permutations and subgroups, against SymPy and plain loops


@given(permutations)
def test_inverse_and_cycles_are_sympys(p):
    theirs = SympyPermutation(list(p))
    assert inverse(p) == tuple((~theirs).array_form)
    assert compose(p, inverse(p)) == compose(inverse(p), p) == tuple(range(len(p)))
    moved = {frozenset(cycle) for cycle in theirs.cyclic_form}
    shown = [frozenset(map(int, c.split())) for c in cycles(p).strip("()").split(")(") if c]
    assert {c for c in shown if len(c) > 1} == moved


@given(st.data(), *(st.integers(1, 4) for _ in range(3)))
def test_compose_is_first_the_second(data, n, m, k):
    a = data.draw(st.lists(st.integers(0, k), min_size=m, max_size=m))
    b = data.draw(st.lists(st.integers(0, m - 1), min_size=n, max_size=n))
    assert compose(a, b) == tuple(a[b[x]] for x in range(n))


@given(several)
def test_generated_groups_are_sympys(generators):
    g = generated(*generators)
    theirs = PermutationGroup([SympyPermutation(list(p), size=len(p)) for p in generators])
    assert {tuple(p.array_form) for p in theirs.elements} == set(g.elements)
    assert len(g) == len(set(g.elements)) == theirs.order() and g.generators == tuple(generators)
    assert list(g.elements) == sorted(g.elements)
    assert g <= symmetric(len(generators[0])) and set(generators) <= set(g.elements)
    assert all(cycles(p) in g.name for p in generators)


@pytest.mark.parametrize("bad", [(), ((0, 0),), ((1, 2),), ((0, 1), (0, 1, 2)), ((1, 0), (0, 2))])
def test_generated_refuses_what_are_no_permutations_of_the_same_points(bad):
    with pytest.raises(ValueError, match="permutations must be permutations of the same points"):
        generated(*bad)


@pytest.mark.parametrize("g", GROUPS, ids=lambda g: g.name)
def test_table_and_inverses(g):
    for i, a in enumerate(g.elements):
        assert g.inverse(a) in g and g.product(a, g.inverse(a)) == g.elements[0]
        for j, b in enumerate(g.elements):
            assert g.elements[g.table[i][j]] == tuple(a[b[x]] for x in range(len(b)))


def test_membership():
    assert (1, 2, 3, 0) in cyclic(4) and (1, 0, 2, 3) not in cyclic(4)
    assert (1, 0) not in cyclic(4) and "e" not in cyclic(4)
    assert cyclic(4) <= dihedral(4) <= symmetric(4) and not symmetric(4) <= dihedral(4)
    assert cyclic(4) <= cyclic(4) and not cyclic(2) <= cyclic(4)  # permutations of other points


@given(st.sampled_from([*SMALL, symmetric(4)]), st.integers(0, 10**6))
def test_subgroups_and_cosets(g, seed):
    """The least set with the members that is closed; its cosets are gH, and part the group."""
    draw = Draw(seed)
    members = draw.integers(0, len(g), draw.integer(0, 3)).tolist()
    found = g.subgroup(members)
    closed = {g.elements[0], *(g.elements[i] for i in members)}
    while more := {g.product(a, b) for a in closed for b in closed} - closed:
        closed |= more
    assert {g.elements[i] for i in found} == closed
    assert list(found) == sorted(set(found)) and len(g) % len(found) == 0

    cosets = g.cosets(found)
    assert len(cosets) == len(g) // len(found) and cosets[0] == found
    assert sorted(i for coset in cosets for i in coset) == list(range(len(g)))
    assert [c[0] for c in cosets] == sorted(c[0] for c in cosets)
    for coset in cosets:
        assert coset == tuple(sorted(coset))
        moved = {g.product(g.elements[coset[-1]], g.elements[h]) for h in found}
        assert {g.elements[i] for i in coset} == moved


@pytest.mark.parametrize(
    ("elements", "generators", "message"),
    [
        (((1, 0), (0, 1)), ((1, 0),), "elements must begin with the identity"),
        (
            ((0, 1, 2), (1, 0, 2), (0, 2, 1)),
            ((1, 0, 2), (0, 2, 1)),
            "elements must be the 6 that the generators generate",
        ),
        (((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0)), ((1, 0, 2),), "generators generate"),  # two cosets
        (((0, 1, 2), (0, 2, 1), (1, 0, 2)), (), "generators generate"),
        (((0, 1), (0, 0)), ((0, 0),), "elements must be permutations of 2 points"),
        (((0, 1), (1, 0)), ((1, 2, 0),), "elements must be permutations of 2 points"),
        (((0, 1), (1, 0), (1, 0)), ((1, 0),), "generators generate"),
        ((), (), "elements must begin with the identity"),
    ],
)
def test_what_is_no_group_is_refused(elements, generators, message):
    with pytest.raises(ValueError, match=message):
        Group("bad", elements, generators)
