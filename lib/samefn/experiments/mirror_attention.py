"""Do heads learn to swap?  One attention layer, trained with a soft mirror loss, and what it measures.

The layer is a :class:`samefn.equivariance.heads.PatchAttention`: 12 × 12 pixels of a photograph are a
grid of square tokens.  It is trained to reproduce them; from some step on it is also asked to commute
with the left-right mirror.  Chapter ``equivariance/heads``.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from ..arguments import Count, NonNegative, Positive, Seed
from ..equivariance.heads import (
    PatchAttention,
    feature_action,
    match,
    positions_error,
    untrained_patch_attention,
    visible_positions_error,
)
from ..equivariance.images import Axis, mirrored_tokens, to_patches
from . import protocol
from .data import natural_patches
from .training import Loss, Record, train

SIDE = 12  # pixels
MEASURE_AT = (0, 600, 1200, 1300, 1400, 1600, 2000, 2500, 3000, 3500)  # steps; the last is measured anyway


def _require_columns(columns: int) -> None:
    if SIDE % columns:
        raise ValueError(f"columns must divide {SIDE}, got {columns}")


def photographs(columns: Count, count: Count = 20_000, *, seed: Seed = 0) -> Float[Tensor, "count tokens n"]:
    """Patches of photographs, each cut into columns² tokens.

    The mean brightness is removed from each, then all are scaled to variance 1.
    """
    _require_columns(columns)
    x = natural_patches(count, SIDE, generator=torch.Generator().manual_seed(seed)).vectors()
    x = x - x.mean(1, keepdim=True)
    return to_patches((x / x.std()).unflatten(1, (SIDE, SIDE)), SIDE // columns)


@dataclass(frozen=True, kw_only=True)
class Setting(protocol.MirrorSetting):
    """One run: columns² tokens, attention on R^d with the given number of heads and their widths."""

    steps: Count = 4000
    batch: Count = 16
    noise: Count = 16
    noise_scale: NonNegative = 3.0
    learning_rate: Positive = 1e-2
    columns: Count = 4
    heads: Count = 6
    d: Count = 8
    d_k: Count = 8
    d_v: Count = 4

    def __post_init__(self) -> None:
        _require_columns(self.columns)


def untrained(setting: Setting) -> PatchAttention:
    """The layer before training, drawn from the setting's seed."""
    n, tokens = (SIDE // setting.columns) ** 2, setting.columns**2
    generator = torch.Generator().manual_seed(setting.seed)
    return untrained_patch_attention(
        n, tokens, setting.d, setting.heads, setting.d_k, setting.d_v, generator=generator
    )


def mirror_loss(x: Float[Tensor, "count tokens n"], setting: Setting) -> Loss[nn.Module]:
    """The loss of a run: reproduce the patches, and commute with the mirror."""

    def reproduce(y: Tensor, chosen: Tensor) -> Tensor:
        return (y - x[chosen]).square().mean()

    return protocol.mirror_loss(x, setting, reproduce, move=mirrored_tokens, move_output=mirrored_tokens)


@torch.no_grad()
def end_to_end(layer: PatchAttention, x: Float[Tensor, "count tokens n"], axis: Axis = "left-right") -> float:
    """The median over x of ‖f(gX) − g f(X)‖ / ‖f(X)‖."""
    y, moved = layer(x), layer(mirrored_tokens(x, axis))
    off = (moved - mirrored_tokens(y, axis)).flatten(1).norm(dim=1)
    return float((off / y.flatten(1).norm(dim=1)).median())


def white_noise(
    layer: PatchAttention, count: Count = 1000, *, seed: Seed = 5
) -> Float[Tensor, "count tokens n"]:
    """Test samples for a layer, always the same."""
    generator = torch.Generator().manual_seed(seed)
    shape = len(layer.positions), layer.embed.shape[1]
    return torch.randn(count, *shape, generator=generator, dtype=torch.float64)


def errors(layer: PatchAttention) -> dict[str, float]:
    """One row of a record: errors under the mirror, and under the other mirror, which nobody asked for."""
    heads, noise = match(layer), white_noise(layer)
    misfit = heads.misfit.gather(1, heads.partner[:, None])
    return {
        "end": end_to_end(layer, noise),
        "end up-down": end_to_end(layer, noise, "up-down"),
        "visible": visible_positions_error(layer),
        "visible up-down": visible_positions_error(layer, "up-down"),
        "positions": positions_error(layer),
        "positions up-down": positions_error(layer, "up-down"),
        "predicted": positions_error(layer, of="pixels"),
        "predicted up-down": positions_error(layer, "up-down", of="pixels"),
        "worst head": float(misfit.max()),
        "median head": float(misfit.median()),
    }


def run(
    x: Float[Tensor, "count tokens n"],
    setting: Setting,
    *,
    measure_at: tuple[int, ...] = (),
    progress: bool = True,
) -> tuple[PatchAttention, Record]:
    """Train one layer and return it with its record, whose rows hold :func:`errors`.

    Measured after the steps in ``measure_at`` and after the last.
    """
    layer = untrained(setting)
    record = train(
        layer,
        mirror_loss(x, setting),
        setting.plan,
        seed=setting.seed,
        measure=errors,
        measure_at=measure_at,
        bar=f"attention, noise × {setting.noise_scale:g}, seed {setting.seed}" if progress else None,
    )
    return layer, record


@torch.no_grad()
def outcome(layer: PatchAttention, record: Record, x: Float[Tensor, "count tokens n"]) -> dict[str, object]:
    """All that the book says of a trained layer, as numbers and lists for a JSON file.

    ``x`` are photographs that it has not seen.
    """
    heads, action = match(layer), feature_action(layer)
    scores, values, _ = layer.visible()
    strengths = torch.linalg.svdvals(layer.embed)
    involution = (action @ action - torch.eye(len(action), dtype=action.dtype)).norm() / len(action) ** 0.5
    return {
        **errors(layer),
        "end photographs": end_to_end(layer, x),
        "fate": heads.fate,
        **{name: column.tolist() for name, column in vars(heads).items()},
        "score sizes": scores.flatten(1).norm(dim=1).tolist(),
        "value sizes": values.flatten(1).norm(dim=1).tolist(),
        "involution": float(involution),
        "weakest": float(strengths[-1] / strengths[0]),
        "reconstruction": float((layer(x) - x).square().mean() / x.square().mean()),
        "rows": record.rows,
    }
