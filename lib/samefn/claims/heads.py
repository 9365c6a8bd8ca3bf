"""B-HEADS: with learned positions, the mirror acts on features, encodings and heads.  Chapter ``equivariance/heads``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import sympy
import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..attention import MultiHeadAttention, PatchAttention, match_heads, scramble
from ..groups import Group, Representation, cyclic, dihedral, direct_sum, on_images, permutation_representation, trivial
from . import Claim, Control, Evidence, require
from .attention import from_products
from .attention import planted as planted_heads


@dataclass(frozen=True, eq=False)
class Planted:
    """An equivariant layer and what was planted: gX = P_g X S_gᵀ, E S_g = ρ(g) E, and g permutes heads by ``heads``."""

    layer: PatchAttention
    tokens: Representation
    pixels: Representation
    features: Representation
    heads: Representation


def invertible(d: int, generator: torch.Generator) -> Float[Tensor, "d d"]:
    """A rotation times a unit triangular matrix: not orthogonal, and its inverse loses no digits."""
    q = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64)).Q
    return q @ (torch.eye(d, dtype=torch.float64) + torch.randn(d, d, generator=generator, dtype=torch.float64).triu(1) / d)


def plant(group: Group, columns: int, pixels: int, d: int, heads: Representation, generator: torch.Generator) -> Planted:
    """A random equivariant layer on columns² tokens of pixels² pixels with d features, d ≤ pixels².

    For the mirror any d will do; for other groups d must be pixels².
    """
    on_tokens, on_pixels = on_images(group, columns), on_images(group, pixels)
    s, p, n = on_pixels.matrices, on_tokens.matrices, pixels**2
    # eigenvectors of a matrix that commutes with the group span invariant subspaces
    draw = torch.randn(n, n, generator=generator, dtype=torch.float64)
    basis = torch.linalg.eigh((s @ (draw + draw.T) @ s.mT).mean(0)).eigenvectors.T[:d]
    embed = invertible(d, generator) @ basis
    decode = torch.linalg.pinv(embed)
    features = Representation(group, embed @ s @ decode)
    draw = torch.randn(columns**2, d, generator=generator, dtype=torch.float64)
    positions = (p @ draw @ features.matrices.mT).mean(0) * len(group) ** 0.5
    layer = PatchAttention(embed, positions, planted_heads(heads, features, generator), decode)
    return Planted(layer, on_tokens, on_pixels, features, heads)


def hide(layer: PatchAttention, generator: torch.Generator) -> tuple[PatchAttention, Int[Tensor, "H"]]:
    """The same function: features and outputs in other coordinates, heads scrambled; new head h is the former ``order[h]``."""
    d = layer.attention.dim_in
    t, b = invertible(d, generator), invertible(d, generator)
    query, key, value, output = (w.detach() for w in layer.attention.parameters())
    inverse = torch.linalg.inv(t)
    attention, order = scramble(MultiHeadAttention(query @ inverse, key @ inverse, value @ inverse, b @ output), generator)
    embed, positions, decode = (w.detach() for w in (layer.embed, layer.positions, layer.decode))
    return PatchAttention(t @ embed, positions @ t.T, attention, decode @ torch.linalg.inv(b)), order


def act(x: Float[Tensor, "... tokens n"], on_tokens: Tensor, on_pixels: Tensor) -> Float[Tensor, "... tokens n"]:
    """gX = P_g X S_gᵀ."""
    return on_tokens @ x @ on_pixels.T


@dataclass(frozen=True, eq=False)
class Found:
    """What :func:`recover` read off the weights for one g; the errors are relative."""

    action: Float[Tensor, "d d"]
    partner: Int[Tensor, "H"]
    pixels: float
    positions: float
    heads: float


def recover(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor) -> Found:
    """T = E S E⁺ and the heads' permutation, from the weights, with no bound on the errors."""
    embed, positions = layer.embed.detach(), layer.positions.detach()
    action = embed @ on_pixels @ torch.linalg.pinv(embed)
    inverse = torch.linalg.inv(action)
    scores, values = (w.detach() for w in layer.products())
    partner, cost = match_heads((inverse.T @ scores @ inverse, on_pixels @ values @ inverse), (scores, values))
    pixels = (embed @ on_pixels - action @ embed).norm() / embed.norm()
    moved = (positions - on_tokens @ positions @ action.T).norm() / positions.norm()
    return Found(action, partner, float(pixels), float(moved), float(cost.gather(1, partner[:, None]).max()))


def violation(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor, x: Tensor) -> float:
    """The largest |f(gX) − g f(X)|, relative to the largest |f(X)|."""
    y = layer(x).detach()
    return float((layer(act(x, on_tokens, on_pixels)).detach() - act(y, on_tokens, on_pixels)).abs().max() / y.abs().max())


def best_action(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor) -> float:
    """The relative misfit of E S = T E and p_τ(t) = T p_t for the best T."""
    before = torch.cat([layer.embed, layer.positions.mT], 1).detach()
    after = torch.cat([layer.embed @ on_pixels, (on_tokens.T @ layer.positions).mT], 1).detach()
    return float((after - after @ torch.linalg.pinv(before) @ before).norm() / after.norm())


def from_visible(layer: PatchAttention, x: Float[Tensor, "batch tokens n"]) -> Float[Tensor, "batch tokens n"]:
    """The function, computed from :meth:`PatchAttention.visible` alone."""
    scores, values, constant = (w.detach() for w in layer.visible())
    tokens = x.shape[-2]
    places = tokens**0.5 * torch.eye(tokens, dtype=x.dtype).expand(*x.shape[:-1], tokens)
    x = torch.cat([x, places], -1).unsqueeze(-3)
    return (torch.softmax(x @ scores @ x.mT, -1) @ x @ values.mT).sum(-3) + constant


@cache
def pole() -> str:
    """(A + tB) s(tm − c) has a pole at (c + iπ)/m, and its residue is (A + tB)/m there."""
    t = sympy.Symbol("t")
    a, b, c = sympy.symbols("A B c", real=True)
    m = sympy.Symbol("m", positive=True)
    at = (c + sympy.I * sympy.pi) / m
    found = sympy.residue((a + t * b) / (1 + sympy.exp(c - t * m)), t, at)
    require(sympy.simplify(found - (a + at * b) / m) == 0, f"the residue is {found}")
    require(sympy.simplify(sympy.im(sympy.expand(found * m))) == b * sympy.pi / m, "a residue 0 does not force B = 0")
    return "residue (A + t₀B)/m at t₀ = (c + iπ)/m (SymPy)"


@cache
def mirror() -> Group:
    return cyclic(2)


@cache
def cases() -> list[tuple[Group, int, int, int, Representation]]:
    """Group, columns, pixels, d, and the action on heads."""
    square = dihedral(4)
    some = direct_sum(trivial(mirror(), 2), permutation_representation(mirror()))
    sizes = [(3, 3, 5), (4, 2, 3), (3, 2, 4), (2, 3, 7)]
    corners = direct_sum(trivial(square), permutation_representation(square))
    return [*((mirror(), *size, some) for size in sizes), (square, 3, 2, 4, corners)]


def line(layer: PatchAttention, x: Float[Tensor, "tokens n"], y: Float[Tensor, "n"], a: int, t: Float[Tensor, "k"]) -> Tensor:
    """Token 0 of f when token a is x_a + ty, by the formula Σ_h C_h + s(t m_h − c_h)(A_h + t B_h)."""
    scores, values = (w.detach() for w in layer.products())
    z, step = layer.features(x).detach(), layer.embed.detach() @ y
    rest = [s for s in range(len(x)) if s != a]
    slope, given = (torch.einsum("i,hij,...j->h...", z[0], scores, v) / layer.attention.query.shape[1] ** 0.5 for v in (step, z))
    c = torch.logsumexp(given[:, rest], 1) - given[:, a]
    others = torch.einsum("hs,hns->hn", torch.softmax(given[:, rest], 1), values @ z[rest].T)
    start, speed = values @ z[a] - others, values @ step
    weight = torch.sigmoid(t[:, None] * slope - c)
    return others.sum(0) + weight @ start + (t[:, None] * weight) @ speed


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    yield Evidence("exact", "a pole of one head's sigmoid is no pole of another's", pole())

    group, columns, pixels, d, heads = cases()[seed % 5]
    known = plant(group, columns, pixels, d, heads, generator)
    layer, order = hide(known.layer, generator)
    x = torch.randn(20, columns**2, pixels**2, generator=generator, dtype=torch.float64)
    same = float((layer(x) - known.layer(x)).detach().abs().max() / layer(x).detach().abs().max())
    seen = float((from_visible(layer, x) - layer(x)).detach().abs().max() / layer(x).detach().abs().max())
    require(max(same, seen) < 1e-10, f"hidden layer off by {same:.1e}, function of the visible matrices by {seen:.1e}")
    pairs = zip((w.detach() for w in layer.visible()[:2]), (w.detach()[order] for w in known.layer.visible()[:2]))
    off = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
    require(off < 1e-10, f"the visible matrices changed by {off:.1e}")
    yield Evidence("numeric", "the function needs only what is visible, and no change of coordinates changes that", f"{seen:.0e}, {off:.0e}")

    worst, whole, maps = 0.0, 0.0, 0.0
    found = [recover(layer, p, s) for p, s in zip(known.tokens.matrices, known.pixels.matrices)]
    before = layer.maps(x).detach()
    for f, p, s, plan in zip(found, known.tokens.matrices, known.pixels.matrices, heads.matrices.argmax(1)):
        require(torch.equal(f.partner, order.argsort()[plan[order]]), f"{group.name}: the planted permutation is not found")
        worst = max(worst, f.pixels, f.positions, f.heads)
        whole = max(whole, violation(layer, p, s, x))
        after = layer.maps(act(x, p, s)).detach()[:, f.partner]
        maps = max(maps, float((after - p @ before @ p.T).abs().max()))
    # three pseudo-inverses and products of well-conditioned matrices: a few hundred roundings
    require(max(worst, whole, maps) < 1e-9, f"weights {worst:.1e}, function {whole:.1e}, maps {maps:.1e}")
    Representation(group, torch.stack([f.action for f in found]))  # raises unless T is a homomorphism
    what = f"{group.name}, {columns}² tokens of {pixels}² pixels, {len(order)} heads, d = {d}: misfit {worst:.0e}"
    yield Evidence("certificate", "T from the pixels moves positions and heads as planted; it represents the group", what)
    yield Evidence("numeric", "f(gX) = g f(X), and the map of head h moves to that of head π(h)", f"{whole:.0e}, {maps:.0e}")

    y, a = torch.randn(pixels**2, generator=generator, dtype=torch.float64), columns**2 - 1
    t = torch.linspace(-3, 3, 13, dtype=torch.float64)
    along = x[0].repeat(len(t), 1, 1)
    along[:, a] += t[:, None] * y
    wanted = layer(along)[:, 0].detach()
    off = float((line(layer, x[0], y, a, t) - wanted).abs().max() / wanted.abs().max())
    require(off < 1e-10, f"the sum of sigmoids is off by {off:.1e}")
    yield Evidence("numeric", "along one token f is a sum of C + s(tm − c)(A + tB)", f"{len(x[0])} tokens, relative difference {off:.0e}")


def with_extra_feature(layer: PatchAttention, generator: torch.Generator) -> PatchAttention:
    """The same function with one feature more, arbitrary in pixels and positions, which no head reads; then hidden."""
    embed, positions, decode = (w.detach() for w in (layer.embed, layer.positions, layer.decode))
    draw = [torch.randn(size, 1, generator=generator, dtype=torch.float64) for size in (embed.shape[1], len(positions))]
    pad = torch.nn.functional.pad
    incoming = [pad(w.detach(), (0, 1)) for w in (layer.attention.query, layer.attention.key, layer.attention.value)]
    attention = MultiHeadAttention(*incoming, pad(layer.attention.output.detach(), (0, 0, 0, 1)))
    wider = PatchAttention(torch.cat([embed, draw[0].T]), torch.cat([positions, draw[1]], 1), attention, pad(decode, (0, 1)))
    return hide(wider, generator)[0]


def positions_only(columns: int, pixels: int, generator: torch.Generator) -> PatchAttention:
    """Two heads with constant maps A + D and A + 2D, D odd under the mirror: equivariant, though the mirror makes them A − D, A − 2D.

    Their values are 2U − V and V − U with U even and V odd, so that f(X) = A X Uᵀ + D X Vᵀ.
    """
    p, s = (on_images(mirror(), k).matrices[1] for k in (columns, pixels))
    tokens, n = len(p), len(s)

    def half(size: int, g: Tensor, sign: int) -> Tensor:
        draw = torch.rand(size, size, generator=generator, dtype=torch.float64)
        return (draw + sign * g @ draw @ g.T) / 2

    even, odd = half(tokens, p, 1) + 1, half(tokens, p, -1)
    even, odd = even / even.sum(1, keepdim=True), odd - odd.mean(1, keepdim=True)
    odd = odd * 0.4 * even.min() / odd.abs().max()
    u, v = half(n, s, 1), half(n, s, -1)
    zero = torch.zeros(n, n, dtype=torch.float64)
    scale = (n + tokens) ** 0.5  # √d_k
    scores = torch.stack([torch.block_diag(zero, scale * torch.log(even + k * odd)) for k in (1, 2)])
    values = torch.stack([torch.block_diag(w, torch.zeros(tokens, tokens, dtype=torch.float64)) for w in (2 * u - v, v - u)])
    eye = torch.eye(n + tokens, dtype=torch.float64)
    return PatchAttention(eye[:, :n].clone(), eye[n:].clone(), from_products(scores, values), eye[:n].clone())


def memory(columns: int, pixels: int, generator: torch.Generator) -> PatchAttention:
    """One head whose query reads pixels and whose keys and values are positions: f(X)_t = v φ(a·x_t), equivariant for odd φ, a and v.

    φ(u) = Σ_s α_s softmax_s(α_s u) is odd because the numbers α_s are symmetric, in an order that has nothing to do with the mirror.
    """
    s, tokens = on_images(mirror(), pixels).matrices[1], columns**2
    a, v = (w - s @ w for w in torch.randn(2, pixels**2, generator=generator, dtype=torch.float64))
    alpha = torch.randn(tokens // 2, generator=generator, dtype=torch.float64)
    alpha = torch.cat([alpha, -alpha, torch.zeros(tokens % 2, dtype=torch.float64)])[torch.randperm(tokens, generator=generator)]
    eye = torch.eye(len(s) + 1, dtype=torch.float64)
    scores, values = (torch.outer(torch.nn.functional.pad(w, (0, 1)), eye[-1])[None] for w in (a, v))
    return PatchAttention(eye[:, :-1].clone(), torch.outer(alpha, eye[-1]), from_products(scores, values), eye[:-1].clone())


def maps_apart(layer: PatchAttention, on_tokens: Tensor, on_pixels: Tensor, x: Tensor) -> float:
    """The largest difference of attention maps on gX and moved maps on X, for the best order of the heads (H ≤ 6)."""
    moved, maps = on_tokens @ layer.maps(x).detach() @ on_tokens.T, layer.maps(act(x, on_tokens, on_pixels)).detach()
    return min(float((maps[:, list(order)] - moved).abs().max()) for order in itertools.permutations(range(maps.shape[1])))


def faint(strength: float, generator: torch.Generator) -> PatchAttention:
    """Heads (εM, R), (εM', −R) on 3 × 3 tokens of 2 × 2 pixels that the mirror takes to (−εM, −R), (−εM', R): f to first order in ε."""
    known = plant(mirror(), 3, 2, 4, trivial(mirror(), 1), generator)
    rho = known.features.matrices[1]
    inverse = torch.linalg.inv(rho)
    m, r = torch.randn(2, 4, 4, generator=generator, dtype=torch.float64), torch.randn(4, 4, generator=generator, dtype=torch.float64)
    m, r = m - inverse.T @ m @ inverse, r - rho @ r @ inverse
    embed, positions, decode = (w.detach() for w in (known.layer.embed, known.layer.positions, known.layer.decode))
    return PatchAttention(embed, positions, from_products(strength * m, torch.stack([r, -r])), decode)


def twins(generator: torch.Generator) -> PatchAttention:
    """Two heads with one M on 3 × 3 tokens of 2 × 2 pixels: equivariant since R_1 + R_2 is, though R_1 and R_2 are not."""
    known = plant(mirror(), 3, 2, 4, trivial(mirror(), 1), generator)
    embed, positions, decode = (w.detach() for w in (known.layer.embed, known.layer.positions, known.layer.decode))
    scores, values = (w.detach() for w in known.layer.attention.products())
    lean = torch.randn(values.shape, generator=generator, dtype=torch.float64)
    return PatchAttention(embed, positions, from_products(scores.repeat(2, 1, 1), torch.cat([values + lean, -lean])), decode)


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    group, columns, pixels, d, heads = cases()[seed % 2]
    known = plant(group, columns, pixels, d, heads, generator)
    p, s = known.tokens.matrices[1], known.pixels.matrices[1]
    x = torch.randn(50, columns**2, pixels**2, generator=generator, dtype=torch.float64)

    layer = known.layer
    embed, positions, decode = (w.detach() for w in (layer.embed, layer.positions, layer.decode))
    shifted = positions.clone()
    shifted[0] += 0.1 * torch.randn(d, generator=generator, dtype=torch.float64)
    whole = violation(PatchAttention(embed, shifted, layer.attention, decode), p, s, x)
    require(whole > 1e-6, f"a moved encoding is not noticed: {whole:.1e}")
    yield Control("p_τ(t) = T p_t", "one encoding moved by 0.1: the layer is no longer equivariant", f"off by {whole:.0e}")

    wider = with_extra_feature(layer, generator)
    whole, miss = violation(wider, p, s, x), best_action(wider, p, s)
    require(whole < 1e-10 and miss > 1e-6, f"extra feature: equivariance {whole:.1e}, best T off by {miss:.1e}")
    yield Control("every direction is read", "equivariant, but no T moves pixels and positions", f"f to {whole:.0e}, best T off by {miss:.2f}")

    shared, small = twins(generator), on_images(mirror(), 2).matrices[1]
    p3, y = on_images(mirror(), 3).matrices[1], torch.randn(50, 9, 4, generator=generator, dtype=torch.float64)
    whole, miss = violation(shared, p3, small, y), recover(shared, p3, small).heads
    require(whole < 1e-10 and miss > 1e-6, f"two heads with one map: equivariance {whole:.1e}, heads {miss:.1e}")
    yield Control("the M_h are distinct", "two heads with one map: equivariant, and only the sum of R_h is moved", f"f to {whole:.0e}, heads off by {miss:.2f}")

    fixed = positions_only(columns, 2, generator)
    whole, miss = violation(fixed, p, small, x[..., :4]), maps_apart(fixed, p, small, x[..., :4])
    require(whole < 1e-10 and miss > 1e-6, f"positions only: equivariance {whole:.1e}, maps {miss:.1e}")
    yield Control("E onto", "scores of positions only: equivariant, and no order of the heads fits", f"f to {whole:.0e}, maps off by {miss:.0e}")

    head = memory(columns, 2, generator)
    scores = head.visible()[0].detach()
    both = torch.block_diag(small, p)
    whole, miss = violation(head, p, small, x[..., :4]), float((both @ scores @ both.T - scores).norm() / scores.norm())
    require(whole < 1e-10 and miss > 1e-6, f"memory: equivariance {whole:.1e}, head {miss:.1e}")
    yield Control("E onto", "a head that uses positions as a memory: equivariant, though it does not flip", f"f to {whole:.0e}, head off by {miss:.1f}")

    errors, misses = [], []
    draw = generator.get_state()
    for strength in (1e-2, 1e-3, 1e-4):
        layer = faint(strength, generator.set_state(draw))
        errors.append(violation(layer, p3, small, y))
        misses.append(recover(layer, p3, small).heads)
    require(errors[2] < 0.1 * errors[0] and min(misses) > 0.1, f"faint heads: errors {errors}, misfits {misses}")
    measured = f"f off by {errors[0]:.0e}, {errors[1]:.0e}, {errors[2]:.0e}; heads by {min(misses):.1f}"
    yield Control("exactly equivariant", "scores of size ε = 1e-2, 1e-3, 1e-4: nearly equivariant, and heads change sign", measured)


CLAIM = Claim(
    id="B-HEADS",
    title="Learned encodings are equivariant, and heads flip in place or swap",
    source="new; [B], Theorem 4.1 for attention with positions",
    hypotheses=(
        "three tokens or more, all values allowed",
        "E is onto",
        "the M_h are nonzero and pairwise distinct, no R_h is 0",
        "every direction of R^d is read",
        "the layer is equivariant",
    ),
    uses=("B-D4", "B-T4.1", "B-ATT"),
    chapter="equivariance/heads",
    evidence=evidence,
    controls=controls,
)
