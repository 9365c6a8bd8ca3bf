"""Attention on patches with learned positions, and how a mirror permutes its heads.

Matrices of heads are those of :meth:`PatchAttention.visible`, which need no action on R^d.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..arguments import Count
from ..networks import checked_weights, require_same_kind
from .attention import MultiHeadAttention, match_heads
from .images import Axis, mirror_on_tokens

CLEAR = 0.2  # scores, or values, fit if they miss each other by less


class PatchAttention(nn.Module):
    """Attention on patches with learned positions: X ↦ Σ_h A_h(Z) Z R_hᵀ with Z = X Eᵀ + P.

    X has shape (..., tokens, n); ``embed`` is E, of shape (d, n); ``positions`` is P, one row p_t for
    each token, (tokens, d); ``attention`` acts on R^d; ``decode`` is D, (n, d).  A_h is the attention
    map of head h and R_h = D W_O,h W_V,h.  Raises TypeError or ValueError, naming the argument, for
    anything that does not fit.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import untrained_patch_attention
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> layer(Draw(1).normal(5, 9, 4)).shape  # five images of nine patches
    torch.Size([5, 9, 4])
    """

    def __init__(
        self,
        embed: Float[Tensor, "d n"],
        positions: Float[Tensor, "tokens d"],
        attention: MultiHeadAttention,
        decode: Float[Tensor, "n d"],
    ) -> None:
        super().__init__()
        self.embed = checked_weights("embed", embed, attention.dim_in, None)
        self.positions, self.decode = (
            checked_weights("positions", positions),
            checked_weights("decode", decode),
        )
        self.attention = attention
        require_same_kind(embed=embed, positions=positions, decode=decode, attention=attention.query)

    def features(
        self, x: Float[Tensor, "... {len(self.positions)} {self.embed.shape[1]}"]
    ) -> Float[Tensor, "... tokens d"]:
        """z_t = E x_t + p_t."""
        require_same_kind(embed=self.embed, x=x)
        return x @ self.embed.mT + self.positions

    def maps(
        self, x: Float[Tensor, "... {len(self.positions)} {self.embed.shape[1]}"]
    ) -> Float[Tensor, "... H tokens tokens"]:
        """The attention map of each head on the patches x."""
        return self.attention.maps(self.features(x))

    def forward(
        self, x: Float[Tensor, "... {len(self.positions)} {self.embed.shape[1]}"]
    ) -> Float[Tensor, "... tokens n"]:
        return self.attention(self.features(x)) @ self.decode.mT

    def products(self) -> tuple[Float[Tensor, "H d d"], Float[Tensor, "H n d"]]:
        """M_h = W_Q,hᵀ W_K,h and R_h = D W_O,h W_V,h."""
        scores, values = self.attention.products()
        return scores, self.decode @ values

    def visible(
        self,
    ) -> tuple[Float[Tensor, "H n_tokens n_tokens"], Float[Tensor, "H n n_tokens"], Float[Tensor, "n"]]:
        """What the function sees of each head: Zᵀ M_h Z C / √d_k and R_h Z C, and the constant Σ_h R_h p̄.

        Here Z = (E, Pᵀ); the long axes have n + tokens entries.  C subtracts the mean position p̄ from every
        position, because a softmax ignores what all keys share.  No change of basis in R^d, d_k or d_v
        changes these matrices.  A symmetry that moves tokens by τ and pixels by S moves them by S ⊕ P_τ,
        without any action on R^d.  Rows and columns of positions are divided by √tokens: then the norm of
        the first matrix is about the root mean square of the scores, less their mean over the keys, on unit
        white noise.
        """
        scores, values = self.products()
        scale = len(self.positions) ** 0.5
        mean = self.positions.mean(0)
        asked = torch.cat([self.embed, self.positions.mT / scale], 1)
        seen = torch.cat([self.embed, (self.positions - mean).mT / scale], 1)
        between = asked.mT @ scores @ seen / self.attention.query.shape[1] ** 0.5
        return between, values @ seen, values.sum(0) @ mean


def untrained_patch_attention(
    n: Count, tokens: Count, d: Count, heads: Count, d_k: Count, d_v: Count, *, generator: torch.Generator
) -> PatchAttention:
    """A layer to be trained, in float64.

    Positions are standard normal, weights uniform with the variance 1 / inputs.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import untrained_patch_attention
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> layer.positions.shape
    torch.Size([9, 4])
    """

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


def _on_grid(layer: PatchAttention, axis: Axis) -> tuple[Int[Tensor, "tokens"], Int[Tensor, "n"]]:
    """:func:`mirror_on_tokens` for the grid of a layer."""
    return mirror_on_tokens(len(layer.positions), layer.embed.shape[1], axis)


@dataclass(frozen=True, eq=False)
class HeadMatch:
    """Each head matched with a mirror image.

    ``partner[h]`` is the head nearest to the mirror image of head h, in the best matching; ``misfit``
    the relative distances of all mirror images from all heads, halved so that unrelated heads are about
    √2 apart; ``scores`` and ``values`` are the two parts for the matched pairs.  ``negated[h]`` is the
    smallest distance, taken like ``misfit``, from a head with both signs changed.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import match, untrained_patch_attention
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> found = match(layer)
    >>> found.misfit.shape, len(found.fate)
    (torch.Size([3, 3]), 3)
    """

    partner: Int[Tensor, "H"]
    misfit: Float[Tensor, "H H"]
    scores: Float[Tensor, "H"]
    values: Float[Tensor, "H"]
    negated: Float[Tensor, "H"]

    @property
    def fate(self) -> list[str]:
        """What became of each head: "in place" or "swapped" if it fits, "map only" if only its scores do.

        Otherwise it is "negated" or "lost".
        """
        return [self._fate(h) for h in range(len(self.partner))]

    def _fate(self, h: int) -> str:
        if self.scores[h] >= CLEAR:
            return "negated" if self.negated[h] < CLEAR else "lost"
        if self.values[h] >= CLEAR:
            return "map only"
        return "in place" if self.partner[h] == h else "swapped"


@torch.no_grad()
def match(layer: PatchAttention, axis: Axis = "left-right") -> HeadMatch:
    """Which head is the mirror image of which: :func:`match_heads` with no bound on the misfit.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import match, untrained_patch_attention
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> bool((match(layer).misfit > 0.5).all())  # random heads are no mirror images
    True
    """
    tau, sigma = _on_grid(layer, axis)
    both = torch.cat([sigma, len(sigma) + tau])
    scores, values, _ = layer.visible()
    moved = scores[:, both][:, :, both], values[:, sigma][:, :, both]
    partner, cost = match_heads(moved, (scores, values), own_size=True)
    _, opposite = match_heads(moved, (-scores, -values), own_size=True)

    def off(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).flatten(1).norm(dim=1) / a.flatten(1).norm(dim=1)

    matched = off(moved[0], scores[partner]), off(moved[1], values[partner])
    return HeadMatch(partner, cost / 2, *matched, opposite.amin(1) / 2)


@torch.no_grad()
def feature_action(
    layer: PatchAttention, axis: Axis = "left-right", *, of: Literal["both", "pixels"] = "both"
) -> Float[Tensor, "d d"]:
    """The matrix T with E S = T E and p_τ(t) = T p_t, by least squares.

    With ``of="pixels"`` it is T = E S E⁺, from the first condition alone: then the second is a prediction.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import feature_action, untrained_patch_attention
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> T = feature_action(layer, of="pixels")
    >>> torch.allclose(T @ T, torch.eye(4))
    True
    """
    tau, sigma = _on_grid(layer, axis)
    if of == "pixels":
        return layer.embed[:, sigma] @ torch.linalg.pinv(layer.embed)
    before = torch.cat([layer.embed, layer.positions.mT], 1)
    return torch.cat([layer.embed[:, sigma], layer.positions[tau].mT], 1) @ torch.linalg.pinv(before)


@torch.no_grad()
def positions_error(
    layer: PatchAttention, axis: Axis = "left-right", *, of: Literal["both", "pixels"] = "both"
) -> float:
    """‖p_τ(t) − T p_t‖ / ‖p_t‖ over all tokens, with T from :func:`feature_action`.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import positions_error, untrained_patch_attention
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> positions_error(layer) > 0.1  # random positions know no mirror
    True
    """
    tau, _ = _on_grid(layer, axis)
    predicted = layer.positions @ feature_action(layer, axis, of=of).mT
    return float((layer.positions[tau] - predicted).norm() / layer.positions.norm())


@torch.no_grad()
def visible_positions_error(layer: PatchAttention, axis: Axis = "left-right") -> float:
    """How far the positions are from equivariant in what the function sees of them; there is no T to fit.

    That is Eᵀ M_hᵀ p_t, Eᵀ M_h (p_t − p̄) and R_h (p_t − p̄) for the matched heads, each kind divided
    by its norm over all heads.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.heads import untrained_patch_attention, visible_positions_error
    >>> sizes = dict(n=4, tokens=9, d=4, heads=3, d_k=2, d_v=2)
    >>> layer = untrained_patch_attention(**sizes, generator=Draw(0))
    >>> visible_positions_error(layer) > 0.1
    True
    """
    tau, sigma = _on_grid(layer, axis)
    scores, values, _ = layer.visible()
    partner, n = match(layer, axis).partner, len(sigma)
    kinds = scores[:, n:, :n].mT, scores[:, :n, n:], values[:, :, n:]
    off = [(k[:, sigma][:, :, tau] - k[partner]).norm() / k.norm() for k in kinds]
    return float(torch.stack(off).square().mean().sqrt())
