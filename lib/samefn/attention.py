"""Multi-head self-attention, its symmetries, and how an equivariant layer permutes its heads ([B])."""

from __future__ import annotations

from dataclasses import dataclass

import scipy.optimize
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from .equivariance import NotEquivariant, NotIdentifiable, _worst
from .groups import Group, Representation
from .networks import _same_kind, _weights


class MultiHeadAttention(nn.Module):
    """X ↦ Σ_h softmax(X W_Q,hᵀ W_K,h Xᵀ / √d_k) X W_V,hᵀ W_O,hᵀ on sequences X of shape (..., tokens, d).

    ``query`` and ``key`` have shape (H, d_k, d), ``value`` (H, d_v, d), ``output`` (H, d, d_v).
    The function depends on head h only through M_h = W_Q,hᵀ W_K,h and R_h = W_O,h W_V,h.
    Raises TypeError or ValueError, naming the argument, for anything that does not fit.
    """

    def __init__(
        self,
        query: Float[Tensor, "H d_k d"],
        key: Float[Tensor, "H d_k d"],
        value: Float[Tensor, "H d_v d"],
        output: Float[Tensor, "H d d_v"],
    ) -> None:
        super().__init__()
        self.query = _weights("query", query, None, None, None)
        heads, _, d = self.query.shape
        self.key = _weights("key", key, *self.query.shape)
        self.value = _weights("value", value, heads, None, d)
        self.output = _weights("output", output, heads, d, self.value.shape[1])
        _same_kind(query=query, key=key, value=value, output=output)

    @property
    def heads(self) -> int:
        return self.query.shape[0]

    @property
    def dim_in(self) -> int:
        return self.query.shape[2]

    dim_out = dim_in

    def products(self) -> tuple[Float[Tensor, "H d d"], Float[Tensor, "H d d"]]:
        """M_h = W_Q,hᵀ W_K,h and R_h = W_O,h W_V,h, which is all that the function knows of head h."""
        return self.query.mT @ self.key, self.output @ self.value

    def maps(self, x: Float[Tensor, "... tokens d"]) -> Float[Tensor, "... H tokens tokens"]:
        """The attention map of each head: row i holds what token i attends to, and sums to 1."""
        x = x.unsqueeze(-3)
        scores = (x @ self.query.mT) @ (x @ self.key.mT).mT
        return torch.softmax(scores / self.query.shape[1] ** 0.5, dim=-1)

    def forward(self, x: Float[Tensor, "... tokens d"]) -> Float[Tensor, "... tokens d"]:
        values = x.unsqueeze(-3) @ self.value.mT @ self.output.mT
        return (self.maps(x) @ values).sum(-3)


def random_attention(heads: int, d: int, d_k: int, d_v: int, *, generator: torch.Generator) -> MultiHeadAttention:
    """Independent standard normal weights divided by √d, in float64.  Raises ValueError unless all sizes are ≥ 1."""
    for name, size in (("heads", heads), ("d", d), ("d_k", d_k), ("d_v", d_v)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64) / d**0.5

    return MultiHeadAttention(
        normal(heads, d_k, d), normal(heads, d_k, d), normal(heads, d_v, d), normal(heads, d, d_v)
    )


def scramble(attention: MultiHeadAttention, generator: torch.Generator) -> tuple[MultiHeadAttention, Tensor]:
    """The same function with other weights: heads permuted, each by a random element of GL(d_k) × GL(d_v).

    Returns the layer and the order: new head h is the former head ``order[h]``.
    """
    order = torch.randperm(attention.heads, generator=generator)
    query, key, value, output = (
        w.detach()[order] for w in (attention.query, attention.key, attention.value, attention.output)
    )

    def invertible(n: int) -> Tensor:
        """Rotations with columns scaled by 1/2 to 2, so that the inverse loses no digits."""
        shape = attention.heads, n, n
        rotation = torch.linalg.qr(torch.randn(shape, generator=generator, dtype=torch.float64)).Q
        return (rotation * 4 ** (torch.rand(shape[0], 1, n, generator=generator, dtype=torch.float64) - 0.5)).to(query.dtype)

    a, b = invertible(query.shape[1]), invertible(value.shape[1])
    inverse_a, inverse_b = torch.linalg.inv(a), torch.linalg.inv(b)
    return MultiHeadAttention(a.mT @ query, inverse_a @ key, inverse_b @ value, output @ b), order


@dataclass(frozen=True, eq=False)
class HeadAction:
    """How a group permutes heads: ``permutations[i][h]`` is where ``group.elements[i]`` takes head h.

    ``error`` is the largest relative misfit of a matched pair of heads.
    """

    group: Group
    permutations: Int[Tensor, "order H"]
    error: float

    def representation(self) -> Representation:
        """The permutation matrices, ρ(g) e_h = e_{π_g(h)}; ValueError if they are not a homomorphism."""
        eye = torch.eye(self.permutations.shape[1], dtype=torch.float64)
        return Representation(self.group, eye[self.permutations].mT)


def head_action(
    attention: MultiHeadAttention, rho: Representation, *, tolerance: float = 1e-6, generator: torch.Generator | None = None
) -> HeadAction:
    """The permutation of heads π_g with M_{π_g(h)} = ρ(g)⁻ᵀ M_h ρ(g)⁻¹ and R_{π_g(h)} = ρ(g) R_h ρ(g)⁻¹.

    ``rho`` acts on the features of every token.  M_h is a bilinear form and R_h a linear map, hence the
    two formulas; for orthogonal ρ(g), ρ⁻ᵀ = ρ.  Equivariance is tested on random sequences of five
    tokens from ``generator``.  Source: [B], multi-head attention (orthogonal ρ).

    Raises TypeError for anything but a MultiHeadAttention and a Representation, ValueError if ρ does not
    fit, :class:`NotEquivariant` if the layer is not equivariant to ``tolerance``, and
    :class:`NotIdentifiable` if, to ``tolerance``, a head is inactive (R_h = 0), two heads have the same
    M_h, or no permutation of the heads fits.
    """
    if not isinstance(attention, MultiHeadAttention):
        raise TypeError(f"attention must be a MultiHeadAttention, got {type(attention).__name__}")
    if not isinstance(rho, Representation):
        raise TypeError(f"rho must be a Representation, got {type(rho).__name__}")
    if rho.dimension != attention.dim_in:
        raise ValueError(f"rho must act on R^{attention.dim_in}, got dimension {rho.dimension}")
    weights = (attention.query, attention.key, attention.value, attention.output)
    attention = MultiHeadAttention(*(w.detach().to(torch.float64) for w in weights))
    generator = generator or torch.Generator().manual_seed(0)
    x = torch.randn(8, 5, attention.dim_in, generator=generator, dtype=torch.float64)
    violation, worst = _worst(attention, rho, rho, x)
    if not violation <= tolerance:
        raise NotEquivariant(f"attention is not equivariant: off by {violation:.1e} at g = {rho.group.elements[worst]}")
    scores, values = (p.detach() for p in attention.products())
    _require_identifiable(scores, values, tolerance)
    permutations, error = [], 0.0
    tiny = torch.finfo(torch.float64).tiny
    size = [p.norm(dim=(1, 2)).max().clamp_min(tiny) for p in (scores, values)]
    matrices = rho.matrices.to(torch.float64)
    for g, inverse in zip(matrices, torch.linalg.inv(matrices)):
        cost = torch.zeros(attention.heads, attention.heads, dtype=torch.float64)
        for product, left, scale in zip((scores, values), (inverse.T, g), size):
            moved = (left @ product @ inverse).flatten(1)
            cost += (moved[:, None] - product.flatten(1)[None]).norm(dim=-1) / scale
        head, image = scipy.optimize.linear_sum_assignment(cost.numpy())
        error = max(error, float(cost[head, image].max()))
        permutations.append(torch.from_numpy(image))
    if not error <= tolerance:
        raise NotIdentifiable(f"attention's heads are not permuted: the best matching misses by {error:.1e}")
    return HeadAction(rho.group, torch.stack(permutations), error)


def _require_identifiable(scores: Tensor, values: Tensor, tolerance: float) -> None:
    sizes = values.norm(dim=(1, 2))
    inactive = (sizes <= tolerance * sizes.max()).nonzero().flatten().tolist()
    if inactive:
        raise NotIdentifiable(f"attention has inactive heads {inactive}: R_h = 0, so their M_h is not determined")
    distance = (scores[:, None] - scores[None]).flatten(2).norm(dim=-1)
    distance.fill_diagonal_(float("inf"))
    if float(distance.min()) <= tolerance * float(scores.norm(dim=(1, 2)).max()):
        first, second = divmod(int(distance.argmin()), len(scores))
        raise NotIdentifiable(f"attention has heads {first} and {second} with the same M_h: only the sum of R_h is determined")
