"""Multi-head self-attention, its symmetries, and how an equivariant layer permutes its heads ([B])."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import scipy.optimize
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..arguments import Count, NonNegative
from ..draw import normal
from ..networks import checked_weights, require_same_kind
from .groups import Group, Representation, cycles
from .layerwise import NotEquivariant, NotIdentifiable, worst_violation


class MultiHeadAttention(nn.Module):
    """X ↦ Σ_h softmax(X W_Q,hᵀ W_K,h Xᵀ / √d_k) X W_V,hᵀ W_O,hᵀ on sequences X of shape (..., tokens, d).

    ``query`` and ``key`` have shape (H, d_k, d), ``value`` (H, d_v, d), ``output`` (H, d, d_v).
    The function depends on head h only through M_h = W_Q,hᵀ W_K,h and R_h = W_O,h W_V,h.
    Raises TypeError or ValueError, naming the argument, for anything that does not fit.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import random_attention
    >>> layer = random_attention(heads=2, d=4, d_k=3, d_v=2, generator=Draw(0))
    >>> M, R = layer.products()
    >>> x = Draw(1).normal(5, 4)  # five tokens
    >>> tuple(M.shape), tuple(layer.maps(x).shape), tuple(layer(x).shape)
    ((2, 4, 4), (2, 5, 5), (5, 4))
    """

    def __init__(
        self,
        query: Float[Tensor, "H d_k d"],
        key: Float[Tensor, "H d_k d"],
        value: Float[Tensor, "H d_v d"],
        output: Float[Tensor, "H d d_v"],
    ) -> None:
        super().__init__()
        self.query, self.key = checked_weights("query", query), checked_weights("key", key)
        self.value, self.output = checked_weights("value", value), checked_weights("output", output)
        require_same_kind(query=query, key=key, value=value, output=output)

    @property
    def heads(self) -> int:
        return self.query.shape[0]

    @property
    def dim_in(self) -> int:
        return self.query.shape[2]

    @property
    def dim_out(self) -> int:
        return self.dim_in

    def products(self) -> tuple[Float[Tensor, "H d d"], Float[Tensor, "H d d"]]:
        """M_h = W_Q,hᵀ W_K,h and R_h = W_O,h W_V,h, which is all that the function knows of head h."""
        return self.query.mT @ self.key, self.output @ self.value

    def maps(
        self, x: Float[Tensor, "*batch tokens {self.dim_in}"]
    ) -> Float[Tensor, "*batch H tokens tokens"]:
        """The attention map of each head: row i holds what token i attends to, and sums to 1."""
        require_same_kind(query=self.query, x=x)
        scores = _each_head(x, self.query) @ _each_head(x, self.key).mT
        return torch.softmax(scores / self.query.shape[1] ** 0.5, dim=-1)

    def forward(self, x: Float[Tensor, "*batch tokens {self.dim_in}"]) -> Float[Tensor, "*batch tokens d"]:
        mixed = self.maps(x) @ _each_head(x, self.value)
        return rearrange(mixed, "... h t v -> ... t (h v)") @ rearrange(self.output, "h d v -> (h v) d")


def _each_head(
    x: Float[Tensor, "*batch tokens d"], weight: Float[Tensor, "H k d"]
) -> Float[Tensor, "*batch H tokens k"]:
    """x @ weight[h].T for every head, as one product of matrices: twice as fast as one for each head."""
    together = x @ rearrange(weight, "h k d -> d (h k)")
    return rearrange(together, "... t (h k) -> ... h t k", h=len(weight))


def random_attention(
    heads: Count, d: Count, d_k: Count, d_v: Count, *, generator: torch.Generator
) -> MultiHeadAttention:
    """Independent standard normal weights divided by √d, in float64.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import random_attention
    >>> random_attention(heads=2, d=4, d_k=3, d_v=2, generator=Draw(0)).query.shape
    torch.Size([2, 3, 4])
    """
    shapes = (heads, d_k, d), (heads, d_k, d), (heads, d_v, d), (heads, d, d_v)
    return MultiHeadAttention(*(normal(*shape, generator=generator) / d**0.5 for shape in shapes))


def scramble(
    attention: MultiHeadAttention, *, generator: torch.Generator
) -> tuple[MultiHeadAttention, Int[Tensor, "H"]]:
    """The same function with other weights: heads permuted, each by a random element of GL(d_k) × GL(d_v).

    Returns the layer and the order: new head h is the former head ``order[h]``.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import random_attention, scramble
    >>> from samefn.functions import gap
    >>> layer = random_attention(heads=3, d=4, d_k=2, d_v=2, generator=Draw(0))
    >>> other, order = scramble(layer, generator=Draw(1))
    >>> gap(layer, other, Draw(2).normal(10, 5, 4)) < 1e-13, sorted(order.tolist())
    (True, [0, 1, 2])
    """
    order = torch.randperm(attention.heads, generator=generator)
    query, key, value, output = (
        w.detach()[order] for w in (attention.query, attention.key, attention.value, attention.output)
    )
    a, b = (
        random_invertible(len(order), w.shape[1], generator=generator).to(w.dtype) for w in (query, value)
    )
    inverse_a, inverse_b = torch.linalg.inv(a), torch.linalg.inv(b)
    return MultiHeadAttention(a.mT @ query, inverse_a @ key, inverse_b @ value, output @ b), order


def random_invertible(count: Count, n: Count, *, generator: torch.Generator) -> Float[Tensor, "count n n"]:
    """Random rotations with columns scaled by 1/2 to 2, so that the inverse loses no digits.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import random_invertible
    >>> matrices = random_invertible(10, 3, generator=Draw(0))
    >>> bool(torch.linalg.cond(matrices).max() < 4.01)
    True
    """
    rotation = torch.linalg.qr(torch.randn(count, n, n, generator=generator, dtype=torch.float64)).Q
    return rotation * 4 ** (torch.rand(count, 1, n, generator=generator, dtype=torch.float64) - 0.5)


@dataclass(frozen=True, eq=False)
class HeadAction:
    """How a group permutes heads: ``permutations[i][h]`` is where ``group.elements[i]`` takes head h.

    ``error`` is the largest relative misfit of a matched pair of heads.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import head_action
    >>> from samefn.equivariance.groups import cyclic, permutation_representation
    >>> from samefn.equivariance.planted_attention import equivariant_attention
    >>> points = permutation_representation(cyclic(3))
    >>> layer = equivariant_attention(points, points, generator=Draw(0))
    >>> head_action(layer, points).representation().dimension == layer.heads
    True
    """

    group: Group
    permutations: Int[Tensor, "order H"]
    error: float

    def representation(self) -> Representation:
        """The permutation matrices, ρ(g) e_h = e_{π_g(h)}; ValueError if they are not a homomorphism."""
        eye = torch.eye(self.permutations.shape[1], dtype=torch.float64)
        return Representation(self.group, eye[self.permutations].mT)


def head_action(
    attention: MultiHeadAttention,
    rho: Representation,
    *,
    tolerance: NonNegative = 1e-6,
    generator: torch.Generator | None = None,
) -> HeadAction:
    """The permutation of heads π_g with M_{π_g(h)} = ρ(g)⁻ᵀ M_h ρ(g)⁻¹ and R_{π_g(h)} = ρ(g) R_h ρ(g)⁻¹.

    ``rho`` acts on the features of every token.  M_h is a bilinear form and R_h a linear map, hence the
    two formulas; for orthogonal ρ(g), ρ⁻ᵀ = ρ.  Equivariance is tested on random sequences of five
    tokens from ``generator`` (seed 0 if none is given).  Source: [B], multi-head attention (orthogonal ρ).

    All is computed in float64 from the weights as they are.  The ``error`` of what is returned was computed
    from the matched products, those of each head relative to its own, so that a large head hides no small
    one.  Weights of lower precision, which were rounded, need a ``tolerance`` above their rounding.

    Raises TypeError for anything but a MultiHeadAttention and a Representation, ValueError if ρ does not
    fit, :class:`NotEquivariant` if the layer is not equivariant to ``tolerance``, and
    :class:`NotIdentifiable` if, to ``tolerance``, a head is inactive (R_h = 0, beside its W_O,h and
    W_V,h), two heads have the same M_h, or no permutation of the heads fits.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import head_action
    >>> from samefn.equivariance.groups import cyclic, permutation_representation
    >>> from samefn.equivariance.planted_attention import equivariant_attention
    >>> points = permutation_representation(cyclic(3))
    >>> layer = equivariant_attention(points, points, generator=Draw(0))
    >>> head_action(layer, points).permutations.tolist()
    [[0, 1, 2], [1, 2, 0], [2, 0, 1]]
    """
    attention = _acted_on(attention, rho)
    _require_equivariant(attention, rho, tolerance, generator or torch.Generator().manual_seed(0))
    scores, values = attention.products()
    _require_identifiable(attention, tolerance)
    permutations, error = [], 0.0
    matrices = rho.matrices.to(scores)
    for g, inverse in zip(matrices, torch.linalg.inv(matrices), strict=True):
        moved = inverse.T @ scores @ inverse, g @ values @ inverse
        image, cost = match_heads(moved, (scores, values), own_size=True)
        error = max(error, float(cost.gather(1, image[:, None]).max()))
        permutations.append(image)
    if not error <= tolerance:
        raise NotIdentifiable(f"attention's heads are not permuted: the best matching misses by {error:.1e}")
    return HeadAction(rho.group, torch.stack(permutations), error)


def _acted_on(attention: MultiHeadAttention, rho: Representation) -> MultiHeadAttention:
    """The layer in float64 without gradients, if ρ can act on its features."""
    if rho.dimension != attention.dim_in:
        raise ValueError(f"rho must act on R^{attention.dim_in}, got dimension {rho.dimension}")
    weights = (attention.query, attention.key, attention.value, attention.output)
    return MultiHeadAttention(*(w.detach().to(torch.float64) for w in weights))


def _require_equivariant(
    attention: MultiHeadAttention, rho: Representation, tolerance: float, generator: torch.Generator
) -> None:
    x = torch.randn(8, 5, attention.dim_in, generator=generator, dtype=torch.float64)
    x = x.to(attention.query.device)
    violation, where = worst_violation(attention, rho, rho, x)
    if not violation <= tolerance:
        raise NotEquivariant(f"attention is not equivariant: off by {violation:.1e} at g = {cycles(where)}")


def _require_identifiable(attention: MultiHeadAttention, tolerance: float) -> None:
    scores, values = attention.products()
    factors = attention.output.norm(dim=(1, 2)) * attention.value.norm(dim=(1, 2))
    inactive = (values.norm(dim=(1, 2)) <= tolerance * factors).nonzero().flatten().tolist()
    if inactive:
        raise NotIdentifiable(
            f"attention has inactive heads {inactive}: R_h = 0, so their M_h is not determined"
        )
    distance = (scores[:, None] - scores[None]).flatten(2).norm(dim=-1)
    distance.fill_diagonal_(float("inf"))
    size = scores.norm(dim=(1, 2))
    distance -= tolerance * torch.maximum(size[:, None], size[None])
    if float(distance.min()) <= 0:
        first, second = divmod(int(distance.argmin()), len(scores))
        raise NotIdentifiable(
            f"attention has heads {first} and {second} with the same M_h: only the sum of R_h is determined"
        )


@torch.no_grad()
def match_heads(
    moved: Sequence[Float[Tensor, "H _ _"]],
    products: Sequence[Float[Tensor, "H _ _"]],
    *,
    own_size: bool = False,
) -> tuple[Int[Tensor, "H"], Float[Tensor, "H H"]]:
    """The best matching of two lists of heads: ``image[h]`` is the head of ``products`` nearest to
    ``moved`` head h.

    A head is given by one matrix of each kind, for instance (M, R).  Returns ``image`` and the distances
    ``cost[h, j]``: the Frobenius norms of the differences, each divided by the norm of the largest
    product of its kind, or with ``own_size`` by that of ``moved`` head h, added up, in float64.  There is
    no bound on the distance of a matched pair.
    Raises ValueError if the lists do not have the same shapes or hold NaN or infinity.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.attention import match_heads, random_attention, scramble
    >>> layer = random_attention(heads=3, d=4, d_k=2, d_v=2, generator=Draw(0))
    >>> other, order = scramble(layer, generator=Draw(1))
    >>> image, cost = match_heads(other.products(), layer.products())
    >>> torch.equal(image, order)
    True
    """
    _require_heads(moved, products)
    costs = []
    for m, p in zip(moved, products, strict=True):
        m, p = (heads.flatten(1).to(torch.float64) for heads in (m, p))
        size = m.norm(dim=1)[:, None] if own_size else p.norm(dim=1).max()
        costs.append((m[:, None] - p[None]).norm(dim=-1) / size.clamp_min(torch.finfo(p.dtype).tiny))
    cost = torch.stack(costs).sum(0)
    return torch.from_numpy(scipy.optimize.linear_sum_assignment(cost.cpu().numpy())[1]), cost


def _require_heads(moved: Sequence[Tensor], products: Sequence[Tensor]) -> None:
    shapes, others = ([tuple(p.shape) for p in kinds] for kinds in (moved, products))
    fits = shapes and all(len(shape) == 3 and shape[0] == shapes[0][0] for shape in shapes)
    if not fits or shapes != others:
        raise ValueError(f"moved and products must have the same shapes (H, i, j), got {shapes} and {others}")
    if not all(torch.isfinite(p).all() for p in (*moved, *products)):
        raise ValueError("moved and products must be finite, got NaN or infinity")
