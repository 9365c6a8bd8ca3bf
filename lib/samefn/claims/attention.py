"""B-ATT: an equivariant attention layer permutes its heads.  Chapter ``equivariance/attention``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import cache

import sympy
import torch
from torch import Tensor

from ..attention import MultiHeadAttention, head_action, random_attention, scramble
from ..equivariance import NotIdentifiable, equivariance_error
from ..groups import Representation, cyclic, dihedral, direct_sum, permutation_representation, representation, symmetric, trivial
from . import Claim, Control, Evidence, require


def from_products(scores: Tensor, values: Tensor) -> MultiHeadAttention:
    """Attention with given M_h and R_h, both of shape (H, d, d), and d_k = d_v = d."""
    eye = torch.eye(scores.shape[1], dtype=scores.dtype).expand_as(scores)
    return MultiHeadAttention(scores.mT, eye.clone(), eye.clone(), values)


def move(scores: Tensor, values: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    """The products of X ↦ g·f(g⁻¹·X): ρ⁻ᵀ M_h ρ⁻¹ and ρ R_h ρ⁻¹."""
    inverse = torch.linalg.inv(g)
    return inverse.mT @ scores @ inverse, g @ values @ inverse


def planted(heads: Representation, rho: Representation, generator: torch.Generator) -> MultiHeadAttention:
    """Equivariant attention whose heads the group permutes by ``heads``: M_h and R_h are averages over the group."""
    count, d = heads.dimension, rho.dimension
    draw = [torch.randn(count, d, d, generator=generator, dtype=torch.float64) for _ in range(2)]
    moved = move(*draw, rho.matrices[:, None])
    return from_products(*(torch.einsum("gkh,ghij->kij", heads.matrices, p) / len(rho.group) for p in moved))


def orbit(attention: MultiHeadAttention, rho: Representation) -> MultiHeadAttention:
    """|G| times the Reynolds average of an attention layer: |G| copies of every head, moved by the group."""
    inverse = torch.linalg.inv(rho.matrices)
    weights = (attention.query, attention.key, attention.value)
    incoming = [torch.cat([w.detach() @ g for g in inverse]) for w in weights]
    return MultiHeadAttention(*incoming, torch.cat([g @ attention.output.detach() for g in rho.matrices]))


def gap(f: MultiHeadAttention, other: MultiHeadAttention, tokens: int, generator: torch.Generator) -> float:
    """The largest difference on 100 normal sequences, relative to the largest value."""
    x = torch.randn(100, tokens, f.dim_in, generator=generator, dtype=torch.float64)
    return float((f(x) - other(x)).detach().abs().max() / f(x).detach().abs().max())


def same_set(f: MultiHeadAttention, other: MultiHeadAttention) -> float:
    """How far the sets {(M_h, R_h)} of two layers are apart, by trying all orders of the heads (H ≤ 6)."""
    pairs, others = (torch.cat([p.detach().flatten(1) for p in layer.products()], 1) for layer in (f, other))
    return min(float((pairs - others[list(order)]).abs().max()) for order in itertools.permutations(range(len(others))))


def unpermuted(attention: MultiHeadAttention, g: Tensor) -> float:
    """How far the moved heads are from the heads in any order, by trying all of them (H ≤ 6)."""
    return same_set(attention, from_products(*move(*(p.detach() for p in attention.products()), g)))


@cache
def shifted_sigmoids() -> str:
    """The 2 × 2 system of the slowest exponentials of s(tm − c) and s(−tm − c) is singular for c = 0 only."""
    e, c = sympy.Symbol("e", positive=True), sympy.Symbol("c", real=True)  # e = exp(t m), tending to 0 and to infinity
    plus = e / (e + sympy.exp(c))  # s(tm − c)
    minus = 1 / (1 + e * sympy.exp(c))  # s(−tm − c)
    left = [sympy.limit((f - sympy.limit(f, e, 0)) / e, e, 0) for f in (plus, minus)]
    right = [sympy.limit((f - sympy.limit(f, e, sympy.oo)) * e, e, sympy.oo) for f in (plus, minus)]
    determinant = sympy.simplify(sympy.Matrix([left, right]).det())
    wanted = sympy.exp(-2 * c) - sympy.exp(2 * c)
    require(sympy.simplify((determinant - wanted).rewrite(sympy.exp)) == 0, f"the determinant is {determinant}")
    require(sympy.solveset(wanted, c, sympy.S.Reals) == sympy.FiniteSet(0), "it vanishes elsewhere")
    return "e^(−2c) − e^(2c) ≠ 0 for c = log(n − 1), n ≥ 3 (SymPy)"


@cache
def two_token_identity() -> str:
    """With two tokens (M, R) may be replaced by (−M, −R) at the price of R(x_1 + x_2)."""
    z, r, x, y = sympy.symbols("z r x y", real=True)

    def head(z: sympy.Expr, r: sympy.Expr) -> sympy.Expr:
        """Output at token 1 of a head with scores 0 and z: value r times a weighted mean of x and y."""
        return r * (x + sympy.exp(z) * y) / (1 + sympy.exp(z))

    difference = sympy.simplify(head(z, r) - head(-z, -r) - r * (x + y))
    require(difference == 0, f"the identity fails by {difference}")
    return "difference R(x₁ + x₂) (SymPy)"


@cache
def groups() -> list[tuple[Representation, Representation]]:
    """Pairs of a representation that permutes heads and an orthogonal one on the features."""
    found = []
    for group in (cyclic(2), cyclic(4), dihedral(4), symmetric(3)):
        points = permutation_representation(group)
        found.append((direct_sum(trivial(group, 2), points), direct_sum(points, trivial(group))))
    return found


def skewed(rho: Representation, generator: torch.Generator) -> Representation:
    """A representation by matrices that are not orthogonal: T ρ T⁻¹ with a unit triangular T."""
    n = rho.dimension
    t = torch.eye(n, dtype=torch.float64) + torch.randn(n, n, generator=generator, dtype=torch.float64).triu(1) / 2
    return Representation(rho.group, t @ rho.matrices @ torch.linalg.inv(t))


def reflection(d: int = 2) -> Representation:
    """C_2 acting on R^d by diag(1, −1, 1, …)."""
    group = cyclic(2)
    sign = torch.ones(d, dtype=torch.float64)
    sign[1] = -1
    return representation(group, {group.generators[0]: torch.diag(sign)})


def two_token_pair(generator: torch.Generator) -> tuple[MultiHeadAttention, MultiHeadAttention]:
    """(M_1, R), (M_2, −R) and (−M_1, −R), (−M_2, R): one function of two tokens, two functions of three.

    All matrices anticommute with the reflection diag(1, −1), which turns the first layer into the second.
    """
    anti = torch.randn(3, 2, 2, generator=generator, dtype=torch.float64) * torch.tensor([[0.0, 1], [1, 0]], dtype=torch.float64)
    scores, values = anti[:2], torch.stack([anti[2], -anti[2]])
    return from_products(scores, values), from_products(-scores, -values)


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    yield Evidence("exact", "sigmoids s(tm − c) with different m are independent: the slowest exponentials decide", shifted_sigmoids())

    heads, d, worst = 3, 4, 0.0
    layer = random_attention(heads, d, 2, 3, generator=generator)
    other, order = scramble(layer, generator)
    same, sets = gap(layer, other, 5, generator), same_set(layer, other)
    require(max(same, sets) < 1e-11, f"scrambled: function off by {same:.1e}, set by {sets:.1e}")
    moved = [p.detach() for p in layer.products()]
    off = max(float((a[order] - b.detach()).abs().max()) for a, b in zip(moved, other.products()))
    require(off < 1e-11, f"the products are not reordered by the permutation that scrambled them: {off:.1e}")
    yield Evidence("numeric", "heads moved by GL(d_k) × GL(d_v) and reordered: same function, same set {(M_h, R_h)}", f"{same:.0e}, {sets:.0e}")

    tokens = int(torch.randint(3, 7, (1,), generator=generator))
    q, v = (torch.randn(d, generator=generator, dtype=torch.float64) for _ in range(2))
    for t in torch.linspace(-8, 8, 17, dtype=torch.float64):
        x = q.repeat(tokens, 1)
        x[1] += t * v
        slopes = torch.einsum("i,hij,j->h", q, moved[0], v) / 2**0.5
        weights = torch.sigmoid(t * slopes - math.log(tokens - 1))
        wanted = moved[1].sum(0) @ q + t * torch.einsum("h,hij,j->i", weights, moved[1], v)
        worst = max(worst, float((layer(x)[0] - wanted).detach().abs().max() / wanted.abs().max()))
    require(worst < 1e-11, f"token 1 is off the sum of shifted sigmoids by {worst:.1e}")
    yield Evidence("numeric", "token 1 of (q, q + tv, q, …, q) is a sum of sigmoids s(tm_h − log(n − 1))", f"n = {tokens}, relative difference {worst:.0e}")

    by_heads, rho = groups()[seed % 4]
    error = 0.0
    for acting in (rho, skewed(rho, generator)):
        layer, order = scramble(planted(by_heads, acting, generator), generator)
        found = head_action(layer, acting, generator=generator)
        # new head h is the former head order[h]
        wanted = torch.stack([order.argsort()[p[order]] for p in by_heads.matrices.argmax(1)])
        require(torch.equal(found.permutations, wanted), f"{rho.group.name}: the planted permutations are not found")
        require(found.representation().dimension == layer.heads, "the permutations do not represent the group")
        error = max(error, found.error)
    yield Evidence("certificate", "planted head permutations are found after scrambling", f"{rho.group.name}, {layer.heads} heads, misfit {error:.0e}")

    layer = orbit(random_attention(1, rho.dimension, 2, 2, generator=generator), rho)
    found = head_action(layer, rho, generator=generator)
    free = all(not (p == torch.arange(len(rho.group))).any() for p in found.permutations[1:])
    require(free, "some g other than e fixes a head of the averaged layer")
    yield Evidence("certificate", "the Reynolds average copies a head for each g, and the group permutes the copies", f"{rho.group.name}, {layer.heads} heads, no head fixed")


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    rho = reflection(3)
    g = rho.matrices[1]
    x = torch.randn(50, 4, 3, generator=generator, dtype=torch.float64)

    def refused(layer: MultiHeadAttention) -> None:
        try:
            head_action(layer, rho, generator=generator)
        except NotIdentifiable:
            return
        require(False, "head_action did not refuse")

    for what, layer in (("distinct M_h", equal_scores(rho, generator)), ("R_h ≠ 0", zero_head(rho, generator))):
        whole = equivariance_error(layer, rho, rho, x)
        miss = unpermuted(layer, g)
        require(whole < 1e-12 and miss > 1e-3, f"{what}: equivariance {whole:.1e}, heads {miss:.1e}")
        refused(layer)
        yield Control(what, "equivariant, but no permutation of the heads fits; head_action refuses", f"f to {whole:.0e}, heads off by {miss:.2f}")

    layer, other = two_token_pair(generator)
    same, differs, sets = gap(layer, other, 2, generator), gap(layer, other, 3, generator), same_set(layer, other)
    require(same < 1e-12 < 1e-9 < min(differs, sets), f"2 tokens {same:.1e}, 3 tokens {differs:.1e}, sets {sets:.1e}")
    small = reflection()
    pair = torch.randn(50, 2, 2, generator=generator, dtype=torch.float64)
    whole, miss = equivariance_error(layer, small, small, pair), unpermuted(layer, small.matrices[1])
    require(whole < 1e-12 and miss > 1e-9, f"on two tokens: equivariance {whole:.1e}, heads {miss:.1e}")
    two_token_identity()
    yield Control("three tokens", "on two tokens equivariant without permuting heads", f"two tokens {whole:.0e}, three {differs:.0e}, sets off by {sets:.2f}")

    acting = skewed(groups()[0][1], generator)
    layer = planted(groups()[0][0], acting, generator)
    h = acting.matrices[1]
    scores = layer.products()[0].detach()
    wrong = h @ scores @ torch.linalg.inv(h)
    miss = min(float((wrong[list(p)] - scores).abs().max()) for p in itertools.permutations(range(len(scores))))
    right = unpermuted(layer, h)
    require(right < 1e-10 and miss > 1e-9, f"ρ⁻ᵀMρ⁻¹ off by {right:.1e}, ρMρ⁻¹ by {miss:.1e}")
    yield Control("orthogonal ρ", "ρMρ⁻¹ fits no order of the heads, ρ⁻ᵀMρ⁻¹ does", f"off by {miss:.2f} and {right:.0e}")


def equal_scores(rho: Representation, generator: torch.Generator) -> MultiHeadAttention:
    """Two heads with one M, equivariant because R_1 + R_2 is, though neither R_1 nor R_2 is."""
    layer = planted(trivial(rho.group, 2), rho, generator)
    scores, values = (p.detach().clone() for p in layer.products())
    scores[1] = scores[0]
    lean = torch.randn(values.shape[1:], generator=generator, dtype=torch.float64)
    values[0], values[1] = values[0] + lean, values[1] - lean
    return from_products(scores, values)


def zero_head(rho: Representation, generator: torch.Generator) -> MultiHeadAttention:
    """An equivariant head, and one with R = 0 and any M."""
    layer = planted(trivial(rho.group, 2), rho, generator)
    scores, values = (p.detach().clone() for p in layer.products())
    scores[1] = torch.randn(scores.shape[1:], generator=generator, dtype=torch.float64)
    values[1] = 0
    return from_products(scores, values)


CLAIM = Claim(
    id="B-ATT",
    title="Equivariant attention with distinct active heads permutes them",
    source="[B], multi-head attention; the proof is ours",
    hypotheses=(
        "the M_h are pairwise distinct",
        "no R_h is 0",
        "three tokens or more, all values allowed",
        "the layer is equivariant; ρ orthogonal, or M moved by ρ⁻ᵀMρ⁻¹",
    ),
    uses=("B-D1", "B-D4", "B-T4.1"),
    chapter="equivariance/attention",
    evidence=evidence,
    controls=controls,
)
