"""Attention against torch's own, its symmetries against all orders of the heads."""

import itertools

import pytest
import torch

from samefn.draw import Draw
from samefn.equivariance.attention import (
    MultiHeadAttention,
    head_action,
    match_heads,
    random_attention,
    random_invertible,
    scramble,
)
from samefn.equivariance.groups import cyclic, permutation_representation, trivial
from samefn.equivariance.layerwise import NotEquivariant, NotIdentifiable, equivariance_error
from samefn.equivariance.planted_attention import (
    equal_scores,
    equivariant_attention,
    from_products,
    head_groups,
    orbit,
    reflection,
    skewed,
    two_token_pair,
    zero_head,
)


def products(layer):
    return [p.detach() for p in layer.products()]


def off(f, other, tokens, seed=0):
    """The largest difference on 100 normal sequences, relative to the largest value."""
    x = Draw(seed).normal(100, tokens, f.dim_in)
    return float((f(x) - other(x)).detach().abs().max() / f(x).detach().abs().max())


def moved(pair, g):
    """ρ⁻ᵀ M_h ρ⁻¹ and ρ R_h ρ⁻¹, head by head."""
    back = torch.linalg.inv(g)
    return torch.stack([back.T @ m @ back for m in pair[0]]), torch.stack([g @ r @ back for r in pair[1]])


def sets_apart(pair, others):
    """How far two sets of heads {(M_h, R_h)} are apart, by all orders."""
    orders = map(list, itertools.permutations(range(len(pair[0]))))
    return min(max(float((a - b[o]).abs().max()) for a, b in zip(pair, others)) for o in orders)


def test_forward_is_torchs_attention():
    heads, d, size = 3, 6, 2  # torch wants d_k = d_v = d / heads
    layer = random_attention(heads, d, size, size, generator=Draw())
    theirs = torch.nn.MultiheadAttention(d, heads, bias=False, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(
            torch.cat([w.reshape(d, d) for w in (layer.query, layer.key, layer.value)])
        )
        theirs.out_proj.weight.copy_(torch.cat([*layer.output], 1))
    x = Draw(1).normal(7, 5, d)
    wanted, maps = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(layer(x), wanted, rtol=0, atol=1e-13)
    torch.testing.assert_close(layer.maps(x), maps, rtol=0, atol=1e-13)


def test_forward_is_the_formula_in_the_products():
    layer = random_attention(2, 3, 4, 5, generator=Draw())
    scores, values = products(layer)
    x = Draw(1).normal(6, 3)
    wanted = torch.zeros(6, 3)
    for m, r in zip(scores, values):
        for i in range(6):
            weights = torch.exp(torch.stack([x[i] @ m @ x[j] for j in range(6)]) / 2)  # √d_k = 2
            wanted[i] += sum(w * (r @ y) for w, y in zip(weights, x)) / weights.sum()
    torch.testing.assert_close(layer(x), wanted, rtol=0, atol=1e-13)
    torch.testing.assert_close(layer(x[None, None]), wanted[None, None], rtol=0, atol=1e-13)
    assert (layer.heads, layer.dim_in, layer.dim_out) == (2, 3, 3)


def test_maps_sum_to_one_and_move_with_the_tokens():
    layer = random_attention(2, 3, 2, 2, generator=Draw())
    x, order = Draw(1).normal(5, 3), torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer.maps(x).sum(-1), torch.ones(2, 5), rtol=0, atol=1e-14)
    torch.testing.assert_close(layer.maps(x[order]), layer.maps(x)[:, order][:, :, order], rtol=0, atol=1e-14)
    torch.testing.assert_close(layer(x[order]), layer(x)[order], rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"query": torch.zeros(2, 3)}, ValueError, "query must be a floating torch.Tensor of shape"),
        ({"key": torch.zeros(2, 3, 5)}, ValueError, "key must be a floating torch.Tensor of shape"),
        ({"key": torch.zeros(2, 1, 4)}, ValueError, "key must be a floating torch.Tensor of shape"),
        ({"value": torch.zeros(1, 3, 4)}, ValueError, "value must be a floating torch.Tensor of shape"),
        ({"output": torch.zeros(2, 3, 4)}, ValueError, "output must be a floating torch.Tensor of shape"),
        ({"value": torch.full((2, 2, 4), torch.nan)}, ValueError, "value must be finite"),
        (
            {"query": torch.zeros(2, 3, 4, dtype=torch.long)},
            TypeError,
            "query must be a floating torch.Tensor",
        ),
        ({"key": torch.zeros(2, 3, 4, dtype=torch.float32)}, ValueError, "key must have the dtype"),
        ({"output": [[1.0]]}, TypeError, "output must be a floating torch.Tensor"),
    ],
)
def test_weights_that_cannot_be(change, error, message):
    shapes = {"query": (2, 3, 4), "key": (2, 3, 4), "value": (2, 2, 4), "output": (2, 4, 2)}
    MultiHeadAttention(**{name: torch.zeros(shape) for name, shape in shapes.items()})
    with pytest.raises(error, match=message):
        MultiHeadAttention(**{name: torch.zeros(shape) for name, shape in shapes.items()} | change)


@pytest.mark.parametrize("bad", ["heads", "d", "d_k", "d_v"])
def test_random_attention_refuses_empty_sizes(bad):
    sizes = {"heads": 2, "d": 3, "d_k": 2, "d_v": 4}
    layer = random_attention(**sizes, generator=Draw())
    assert (
        layer.query.shape == (2, 2, 3) and layer.value.shape == (2, 4, 3) and layer.output.shape == (2, 3, 4)
    )
    with pytest.raises(ValueError, match=f"{bad} must be an integer of at least 1, got 0"):
        random_attention(**sizes | {bad: 0}, generator=Draw())


@pytest.mark.parametrize("seed", range(5))
def test_scramble_changes_weights_only(seed):
    layer = random_attention(4, 5, 2, 3, generator=Draw(seed))
    other, order = scramble(layer, generator=Draw(seed + 100))
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert all((a[order] - b).abs().max() > 0.01 for a, b in zip(layer.parameters(), other.parameters()))
    assert all((a[order] - b).abs().max() < 1e-12 for a, b in zip(products(layer), products(other)))
    assert off(layer, other, 6, seed) < 1e-12
    single = MultiHeadAttention(*(w.detach().float() for w in layer.parameters()))
    assert scramble(single, generator=Draw(seed))[0].query.dtype == torch.float32


@pytest.mark.parametrize("case", range(4), ids=lambda i: head_groups()[i][1].group.name)
@pytest.mark.parametrize("skew", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_planted_permutations_are_recovered(case, skew, seed):
    draw = Draw(seed)
    heads, rho = head_groups()[case]
    rho = skewed(rho, generator=draw) if skew else rho
    plain = equivariant_attention(heads, rho, generator=draw)
    x = draw.normal(20, 4, rho.dimension)
    assert equivariance_error(plain, rho, rho, x) < 1e-11
    # matrices.argmax(1)[h] is where the permutation matrix takes e_h
    assert torch.equal(head_action(plain, rho).permutations, heads.matrices.argmax(1))
    layer, order = scramble(plain, generator=draw)
    found = head_action(layer, rho)
    for found_p, p in zip(found.permutations, heads.matrices.argmax(1)):
        assert torch.equal(order[found_p], p[order])
    assert found.error < 1e-10
    rep = found.representation()
    for g, h in itertools.product(rho.group.elements, repeat=2):
        assert torch.equal(rep(rho.group.product(g, h)), rep(g) @ rep(h))


@pytest.mark.parametrize("case", range(4))
def test_recovered_permutation_is_the_only_one(case):
    """Oracle: all orders of the heads; exactly the one found carries every product to its moved partner."""
    heads, rho = head_groups()[case]
    layer, _ = scramble(equivariant_attention(heads, rho, generator=Draw()), generator=Draw(1))
    found, before = head_action(layer, rho), products(layer)
    for g, permutation in zip(rho.matrices, found.permutations):
        fits = [
            p
            for p in itertools.permutations(range(layer.heads))
            if all((after - b[list(p)]).abs().max() < 1e-9 for after, b in zip(moved(before, g), before))
        ]
        assert fits == [tuple(permutation.tolist())]


def test_reynolds_average_is_attention_with_copies():
    _, rho = head_groups()[2]
    base = random_attention(2, rho.dimension, 2, 3, generator=Draw())
    layer = orbit(base, rho)
    x = Draw(1).normal(4, 3, rho.dimension)
    average = sum(base(x @ torch.linalg.inv(g).T) @ g.T for g in rho.matrices)
    torch.testing.assert_close(layer(x), average, rtol=0, atol=1e-12)
    found = head_action(scramble(layer, generator=Draw(2))[0], rho)
    for g, p in zip(rho.group.elements, found.permutations):
        fixed = p == torch.arange(16)
        assert fixed.all() if g == rho.group.elements[0] else not fixed.any()


def test_single_precision_is_enough_with_a_matching_tolerance():
    heads, rho = head_groups()[0]
    double, _ = scramble(equivariant_attention(heads, rho, generator=Draw()), generator=Draw(1))
    layer = MultiHeadAttention(*(w.detach().float() for w in double.parameters()))
    assert head_action(layer, rho, tolerance=1e-4).error < 1e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_heads_of_any_precision_are_matched(dtype):
    products = [Draw(k).normal(4, 3, 3) for k in range(2)]
    order = torch.tensor([2, 0, 3, 1])
    image, cost = match_heads([p[order].to(dtype) for p in products], [p.to(dtype) for p in products])
    assert torch.equal(image, order) and cost.dtype == torch.float64
    assert float(cost.gather(1, image[:, None]).max()) == 0
    rho = permutation_representation(cyclic(3))
    attention = reynolds_like(rho, dtype)
    assert head_action(attention, rho, tolerance=0.1).permutations[1].tolist() == [1, 2, 0]


def reynolds_like(rho, dtype):
    """Three heads that a rotation of the features carries to each other."""
    draw = Draw(1)
    query, key, value, output = draw.normal(2, 3), draw.normal(2, 3), draw.normal(2, 3), draw.normal(3, 2)
    turn = rho(rho.group.generators[0])
    powers = [torch.linalg.matrix_power(turn, k) for k in range(3)]
    right = [torch.stack([w @ p.T for p in powers]).to(dtype) for w in (query, key, value)]
    return MultiHeadAttention(*right, torch.stack([p @ output for p in powers]).to(dtype))


@pytest.mark.parametrize("size", [1e-9, 1e9])
def test_a_large_head_hides_no_small_one(size):
    """Two heads that a mirror should exchange, and does not, beside two others of another size."""
    rho = permutation_representation(cyclic(2))
    draw, swap = Draw(2), rho.matrices[1]
    weights = [draw.normal(2, 2, 2) for _ in range(4)]
    pair = lambda w, write: torch.stack([w, swap @ w if write else w @ swap])
    good = [pair(w[0], k == 3) for k, w in enumerate(weights)]
    faint = [pair(w[1], k == 3) for k, w in enumerate(weights)]
    faint[3] = size * faint[3]  # the function sees them through W_O
    both = MultiHeadAttention(*(torch.cat(two) for two in zip(good, faint)))
    assert head_action(both, rho).permutations[1].tolist() == [1, 0, 3, 2]
    faint[3][1] *= 1.5
    broken = MultiHeadAttention(*(torch.cat(two) for two in zip(good, faint)))
    with pytest.raises((NotEquivariant, NotIdentifiable)):
        head_action(broken, rho)


def test_a_head_without_scores_is_a_head():
    """M = 0 averages all tokens; one such head is allowed."""
    rho = reflection(3)
    layer = from_products(torch.zeros(1, 3, 3), torch.eye(3)[None])
    assert head_action(layer, rho).permutations.tolist() == [[0], [0]]


def test_refusals_name_the_heads():
    rho = reflection(3)
    with pytest.raises(NotIdentifiable, match=r"inactive heads \[1\]"):
        head_action(zero_head(rho, generator=Draw()), rho)
    with pytest.raises(NotIdentifiable, match="heads 0 and 1 with the same M_h"):
        head_action(equal_scores(rho, generator=Draw()), rho)
    with pytest.raises(NotEquivariant, match=r"off by .* at g = \(0 1\)"):
        head_action(random_attention(2, 3, 2, 2, generator=Draw()), rho)
    nearly = equivariant_attention(trivial(rho.group, 2), rho, generator=Draw())
    scores, values = products(nearly)
    scores[1] = scores[0] + 1e-9 * scores[1]
    with pytest.raises(NotIdentifiable, match="the same M_h"):
        head_action(from_products(scores, values), rho)
    assert head_action(from_products(scores, values), rho, tolerance=1e-11).permutations.tolist() == [
        [0, 1],
        [0, 1],
    ]


def test_nearly_equal_heads_are_refused_by_their_misfit():
    """M_1 and M_2 differ by more than the tolerance, but too little to show that the R_h do not fit."""
    rho = reflection(3)
    scores, values = products(equivariant_attention(trivial(rho.group, 2), rho, generator=Draw()))
    lean = Draw(1).normal(3, 3)
    scores[1] = scores[0] + 1e-3 * scores[1]
    values += 0.05 * torch.stack([lean, -lean])
    layer = from_products(scores, values)
    with pytest.raises(NotIdentifiable, match="the best matching misses by"):
        head_action(layer, rho, tolerance=2e-4)


def test_a_representation_that_does_not_fit():
    layer = random_attention(2, 3, 2, 2, generator=Draw())
    with pytest.raises(ValueError, match=r"rho must act on R\^3, got dimension 2"):
        head_action(layer, permutation_representation(cyclic(2)))


def test_wrong_arguments():
    rho = reflection(3)
    layer = random_attention(2, 3, 2, 2, generator=Draw())
    with pytest.raises(TypeError, match="attention must be a MultiHeadAttention, got 'layer'"):
        head_action("layer", rho)
    with pytest.raises(TypeError, match=r"rho must be a Representation, got a torch.float64 Tensor"):
        head_action(layer, rho.matrices)


@pytest.mark.parametrize("seed", range(5))
def test_two_tokens_do_not_determine_the_heads(seed):
    layer, other = two_token_pair(generator=Draw(seed))
    assert off(layer, other, 2) < 1e-12
    assert off(layer, other, 3) > 1e-6
    assert sets_apart(products(layer), products(other)) > 1e-3
    rho = reflection()
    assert equivariance_error(layer, rho, rho, torch.randn(50, 2, 2, generator=Draw())) < 1e-12
    assert sets_apart(moved(products(layer), rho.matrices[1]), products(layer)) > 1e-3


def test_two_tokens_in_general():
    """(M_h, R_h) → ±(M_h, R_h) keeps the function of two tokens exactly if the turned R_h add up to 0."""
    scores, values = products(random_attention(4, 3, 3, 3, generator=Draw()))
    values[2] = -values[0] - values[1]
    for size in range(5):
        for turned in itertools.combinations(range(4), size):
            sign = torch.ones(4, 1, 1)
            sign[list(turned)] = -1
            miss = off(from_products(scores, values), from_products(sign * scores, sign * values), 2)
            assert (miss < 1e-12) is (turned in [(), (0, 1, 2)])


def test_random_invertible_matrices_are_far_from_singular():
    matrices = random_invertible(50, 4, generator=Draw())
    sizes = torch.linalg.svdvals(matrices)
    assert matrices.shape == (50, 4, 4) and float(sizes.min()) >= 0.5 and float(sizes.max()) <= 2
    gram = matrices.mT @ matrices  # rotations with scaled columns
    torch.testing.assert_close(gram, torch.diag_embed(gram.diagonal(dim1=1, dim2=2)), rtol=0, atol=1e-14)
