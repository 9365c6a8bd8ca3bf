"""Multi-head self-attention, its symmetries, and how an equivariant layer permutes its heads ([B])."""

from __future__ import annotations

from collections.abc import Sequence
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
        scores = _each_head(x, self.query) @ _each_head(x, self.key).mT
        return torch.softmax(scores / self.query.shape[1] ** 0.5, dim=-1)

    def forward(self, x: Float[Tensor, "... tokens d"]) -> Float[Tensor, "... tokens d"]:
        mixed = self.maps(x) @ _each_head(x, self.value)
        return mixed.transpose(-2, -3).flatten(-2) @ self.output.transpose(0, 1).flatten(1).mT


def _each_head(x: Float[Tensor, "... tokens d"], weight: Float[Tensor, "H k d"]) -> Float[Tensor, "... H tokens k"]:
    """x @ weight[h].T for every head, as one product of matrices: twice as fast as one for each head."""
    return (x @ weight.flatten(0, 1).mT).unflatten(-1, weight.shape[:2]).transpose(-2, -3)


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
    matrices = rho.matrices.to(torch.float64)
    for g, inverse in zip(matrices, torch.linalg.inv(matrices)):
        image, cost = match_heads((inverse.T @ scores @ inverse, g @ values @ inverse), (scores, values))
        error = max(error, float(cost.gather(1, image[:, None]).max()))
        permutations.append(image)
    if not error <= tolerance:
        raise NotIdentifiable(f"attention's heads are not permuted: the best matching misses by {error:.1e}")
    return HeadAction(rho.group, torch.stack(permutations), error)


def match_heads(
    moved: Sequence[Float[Tensor, "H i j"]], products: Sequence[Float[Tensor, "H i j"]], *, own_size: bool = False
) -> tuple[Int[Tensor, "H"], Float[Tensor, "H H"]]:
    """The best matching of two lists of heads: ``image[h]`` is the head of ``products`` that ``moved`` head h is nearest to.

    A head is given by one matrix of each kind, for instance (M, R).  Returns ``image`` and the distances
    ``cost[h, j]``: the Frobenius norms of the differences, each divided by the norm of the largest product of its
    kind, or with ``own_size`` by that of head h, added up.  There is no bound on the distance of a matched pair.
    Raises ValueError if the lists do not have the same shapes or hold NaN or infinity.
    """
    shapes = [[tuple(p.shape) for p in kinds] for kinds in (moved, products)]
    if not shapes[0] or shapes[0] != shapes[1] or any(len(shape) != 3 or shape[0] != shapes[0][0][0] for shape in shapes[0]):
        raise ValueError(f"moved and products must have the same shapes (H, i, j), got {shapes[0]} and {shapes[1]}")
    if not all(torch.isfinite(p).all() for p in (*moved, *products)):
        raise ValueError("moved and products must be finite, got NaN or infinity")
    cost = torch.zeros(2 * shapes[0][0][:1], dtype=products[0].dtype)
    for m, p in zip(moved, products):
        m, p = m.detach().flatten(1), p.detach().flatten(1)
        size = m.norm(dim=1)[:, None] if own_size else p.norm(dim=1).max()
        cost += (m[:, None] - p[None]).norm(dim=-1) / size.clamp_min(torch.finfo(p.dtype).tiny)
    return torch.from_numpy(scipy.optimize.linear_sum_assignment(cost.numpy())[1]), cost


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


def to_patches(images: Float[Tensor, "... height width"], size: int) -> Float[Tensor, "... tokens n"]:
    """Square patches of ``size`` pixels as tokens, row by row, each flattened: n = size².

    Raises ValueError if the patches do not fill the image.
    """
    height, width = images.shape[-2:]
    if size < 1 or height % size or width % size:
        raise ValueError(f"size must divide the height and width of the images, {height} and {width}, got {size}")
    return images.unflatten(-1, (-1, size)).unflatten(-3, (-1, size)).transpose(-2, -3).flatten(-2).flatten(-3, -2)


def from_patches(tokens: Float[Tensor, "... tokens n"], columns: int) -> Float[Tensor, "... height width"]:
    """The images whose patches, ``columns`` of them in each row, are ``tokens``: the inverse of :func:`to_patches`.

    Raises ValueError if the tokens are no squares or do not fill their rows.
    """
    count, n = tokens.shape[-2:]
    size = round(n**0.5)
    if size**2 != n or columns < 1 or count % columns:
        raise ValueError(f"tokens must be squares in rows of {columns}, got {count} tokens of {n} pixels")
    return tokens.unflatten(-2, (-1, columns)).unflatten(-1, (size, size)).transpose(-2, -3).flatten(-2).flatten(-3, -2)


class PatchAttention(nn.Module):
    """Attention on patches with learned positions: X ↦ Σ_h A_h(Z) Z R_hᵀ with Z = X Eᵀ + P, on X of shape (..., tokens, n).

    ``embed`` is E, of shape (d, n); ``positions`` is P, one row p_t for each token, (tokens, d); ``attention`` acts
    on R^d; ``decode`` is D, (n, d).  A_h is the attention map of head h and R_h = D W_O,h W_V,h.
    Raises TypeError or ValueError, naming the argument, for anything that does not fit.
    """

    def __init__(
        self,
        embed: Float[Tensor, "d n"],
        positions: Float[Tensor, "tokens d"],
        attention: MultiHeadAttention,
        decode: Float[Tensor, "n d"],
    ) -> None:
        super().__init__()
        if not isinstance(attention, MultiHeadAttention):
            raise TypeError(f"attention must be a MultiHeadAttention, got {type(attention).__name__}")
        self.embed = _weights("embed", embed, attention.dim_in, None)
        self.positions = _weights("positions", positions, None, attention.dim_in)
        self.attention = attention
        self.decode = _weights("decode", decode, self.embed.shape[1], attention.dim_in)
        _same_kind(embed=embed, positions=positions, decode=decode, attention=attention.query)

    def features(self, x: Float[Tensor, "... tokens n"]) -> Float[Tensor, "... tokens d"]:
        """z_t = E x_t + p_t."""
        return x @ self.embed.mT + self.positions

    def maps(self, x: Float[Tensor, "... tokens n"]) -> Float[Tensor, "... H tokens tokens"]:
        """The attention map of each head on the patches x."""
        return self.attention.maps(self.features(x))

    def forward(self, x: Float[Tensor, "... tokens n"]) -> Float[Tensor, "... tokens n"]:
        return self.attention(self.features(x)) @ self.decode.mT

    def products(self) -> tuple[Float[Tensor, "H d d"], Float[Tensor, "H n d"]]:
        """M_h = W_Q,hᵀ W_K,h and R_h = D W_O,h W_V,h."""
        scores, values = self.attention.products()
        return scores, self.decode @ values

    def visible(self) -> tuple[Float[Tensor, "H n+tokens n+tokens"], Float[Tensor, "H n n+tokens"], Float[Tensor, "n"]]:
        """What the function sees of each head: Zᵀ M_h Z C / √d_k and R_h Z C with Z = (E, Pᵀ), and the constant Σ_h R_h p̄.

        C subtracts the mean position p̄ from every position, because a softmax ignores what all keys share.
        No change of basis in R^d, d_k or d_v changes these matrices.  A symmetry that moves tokens by τ and pixels by S
        moves them by S ⊕ P_τ, without any action on R^d.
        Rows and columns of positions are divided by √tokens: then the norm of the first
        matrix is about the root mean square of the scores, less their mean over the keys, on unit white noise.
        """
        scores, values = self.products()
        scale = len(self.positions) ** 0.5
        mean = self.positions.mean(0)
        asked = torch.cat([self.embed, self.positions.mT / scale], 1)
        seen = torch.cat([self.embed, (self.positions - mean).mT / scale], 1)
        return asked.mT @ scores @ seen / self.attention.query.shape[1] ** 0.5, values @ seen, values.sum(0) @ mean


def untrained_patch_attention(
    n: int, tokens: int, d: int, heads: int, d_k: int, d_v: int, *, generator: torch.Generator
) -> PatchAttention:
    """A layer to be trained, in float64: positions are standard normal, weights uniform with the variance 1 / inputs.

    Raises ValueError unless all sizes are ≥ 1.
    """
    for name, size in (("n", n), ("tokens", tokens), ("d", d), ("heads", heads), ("d_k", d_k), ("d_v", d_v)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")

    def uniform(*shape: int, inputs: int) -> nn.Parameter:
        draw = torch.rand(*shape, generator=generator, dtype=torch.float64)
        return nn.Parameter((2 * draw - 1) * (3 / inputs) ** 0.5)

    attention = MultiHeadAttention(
        uniform(heads, d_k, d, inputs=d),
        uniform(heads, d_k, d, inputs=d),
        uniform(heads, d_v, d, inputs=d),
        uniform(heads, d, d_v, inputs=heads * d_v),
    )
    positions = nn.Parameter(torch.randn(tokens, d, generator=generator, dtype=torch.float64))
    return PatchAttention(uniform(d, n, inputs=n), positions, attention, uniform(n, d, inputs=d))
