"""Do heads learn to swap?  One attention layer on patches of photographs, trained with a soft mirror loss, and what it measures.

The layer is a :class:`samefn.attention.PatchAttention`: 12 × 12 pixels of a photograph are a grid of square tokens.
It is trained to reproduce them; from some step on it is also asked to commute with the left-right mirror.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import resources

import torch
from jaxtyping import Float, Int
from torch import Tensor

from .attention import PatchAttention, match_heads, to_patches, untrained_patch_attention
from .datasets import natural_patches
from .mirror import AXES
from .training import Record, train

SIDE = 12  # pixels
MEASURE_AT = (0, 600, 1200, 1300, 1400, 1600, 2000, 2500, 3000, 3500)  # steps; the last is measured anyway
CLEAR = 0.2  # scores, or values, fit if they miss each other by less


def photographs(columns: int, count: int = 20_000, seed: int = 0) -> Float[Tensor, "count tokens n"]:
    """Patches of photographs, each cut into columns² tokens: mean brightness removed from each, then all scaled to variance 1."""
    x = natural_patches(count, SIDE, generator=torch.Generator().manual_seed(seed)).vectors()
    x = x - x.mean(1, keepdim=True)
    return to_patches((x / x.std()).unflatten(1, (SIDE, SIDE)), SIDE // columns)


def mirror_on_tokens(tokens: int, n: int, axis: str = "left-right") -> tuple[Int[Tensor, "tokens"], Int[Tensor, "n"]]:
    """Where the mirror takes square grids of tokens and of pixels: τ and σ, their own inverses; (gX)_τ(t) is x_t read in the order σ.

    Raises ValueError for another axis than "left-right" and "up-down", or numbers that are no squares.
    """
    if axis not in AXES:
        raise ValueError(f"axis must be one of {', '.join(AXES)}, got {axis!r}")
    sides = round(tokens**0.5), round(n**0.5)
    if (sides[0] ** 2, sides[1] ** 2) != (tokens, n):
        raise ValueError(f"tokens and n must be squares, got {tokens} and {n}")
    return tuple(torch.arange(k * k).view(k, k).flip(AXES[axis]).flatten() for k in sides)


def mirrored_tokens(x: Float[Tensor, "... tokens n"], axis: str = "left-right") -> Float[Tensor, "... tokens n"]:
    """The tokens of the mirror image: gX."""
    tau, sigma = mirror_on_tokens(*x.shape[-2:], axis)
    return x[..., tau, :][..., sigma]


def actions(layer: PatchAttention, axis: str = "left-right") -> tuple[Int[Tensor, "tokens"], Int[Tensor, "n"]]:
    """:func:`mirror_on_tokens` for the grid of a layer."""
    return mirror_on_tokens(len(layer.positions), layer.embed.shape[1], axis)


@dataclass(frozen=True)
class Setting:
    """One run.  The mirror loss is ``mirror_weight`` times the mean squared violation over ``batch`` patches and ``noise``
    samples of white noise of standard deviation ``loudness``, from the fraction ``mirror_from`` of the ``steps`` on.
    """

    seed: int = 0
    columns: int = 4
    loudness: float = 3.0
    heads: int = 6
    d: int = 8
    d_k: int = 8
    d_v: int = 4
    steps: int = 4000
    batch: int = 16
    noise: int = 16
    mirror_weight: float = 10.0
    mirror_from: float = 0.3
    learning_rate: float = 1e-2
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        for name in ("heads", "d", "d_k", "d_v", "steps", "batch", "noise"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.columns < 1 or SIDE % self.columns:
            raise ValueError(f"columns must divide {SIDE}, got {self.columns}")
        if not 0 <= self.mirror_from <= 1:
            raise ValueError(f"mirror_from must lie in [0, 1], got {self.mirror_from}")


def untrained(setting: Setting) -> PatchAttention:
    """The layer before training, drawn from the setting's seed."""
    generator = torch.Generator().manual_seed(setting.seed)
    sizes = ((SIDE // setting.columns) ** 2, setting.columns**2, setting.d, setting.heads, setting.d_k, setting.d_v)
    return untrained_patch_attention(*sizes, generator=generator)


def mirror_loss(x: Float[Tensor, "count tokens n"], setting: Setting) -> Callable[[PatchAttention, int, torch.Generator], Tensor]:
    """The loss of a run, for :func:`samefn.training.train`: reproduce the patches, and commute with the mirror."""

    def loss(layer: PatchAttention, step: int, generator: torch.Generator) -> Tensor:
        chosen = x[torch.randint(len(x), (setting.batch,), generator=generator)]
        if step < setting.mirror_from * setting.steps:
            return (layer(chosen) - chosen).square().mean()
        noise = torch.randn(setting.noise, *x.shape[1:], generator=generator, dtype=x.dtype)
        batch = torch.cat([chosen, setting.loudness * noise])
        y, moved = layer(torch.cat([batch, mirrored_tokens(batch)])).split(len(batch))
        violation = (moved - mirrored_tokens(y)).square().mean()
        return (y[: setting.batch] - chosen).square().mean() + setting.mirror_weight * violation

    return loss


@torch.no_grad()
def end_to_end(layer: PatchAttention, x: Float[Tensor, "count tokens n"], axis: str = "left-right") -> float:
    """The median over x of ‖f(gX) − g f(X)‖ / ‖f(X)‖."""
    y, moved = layer(x), layer(mirrored_tokens(x, axis))
    return float(((moved - mirrored_tokens(y, axis)).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).median())


@dataclass(frozen=True, eq=False)
class Heads:
    """Each head matched with a mirror image.  Matrices are those of :meth:`PatchAttention.visible`, which need no action on R^d.

    ``partner[h]`` is the head nearest to the mirror image of head h, in the best matching; ``misfit`` (H, H) the relative
    distances of all mirror images from all heads, halved so that unrelated heads are about √2 apart; ``scores`` and ``values``
    are the two parts for the matched pairs.  ``negated[h]`` is the smallest distance, taken like ``misfit``, from a head with both signs changed.
    """

    partner: Int[Tensor, "H"]
    misfit: Float[Tensor, "H H"]
    scores: Float[Tensor, "H"]
    values: Float[Tensor, "H"]
    negated: Float[Tensor, "H"]

    @property
    def fate(self) -> list[str]:
        """For each head "in place" or "swapped"; "map only" if its scores fit and its values do not; else "negated" or "lost"."""
        fates = []
        for h, partner in enumerate(self.partner.tolist()):
            if self.scores[h] < CLEAR:
                matched = "in place" if partner == h else "swapped"
                fates.append(matched if self.values[h] < CLEAR else "map only")
            else:
                fates.append("negated" if self.negated[h] < CLEAR else "lost")
        return fates


@torch.no_grad()
def match(layer: PatchAttention, axis: str = "left-right") -> Heads:
    """Which head is the mirror image of which: :func:`samefn.attention.match_heads` with no bound on the misfit."""
    tau, sigma = actions(layer, axis)
    both = torch.cat([sigma, len(sigma) + tau])
    scores, values, _ = layer.visible()
    moved = scores[:, both][:, :, both], values[:, sigma][:, :, both]
    partner, cost = match_heads(moved, (scores, values), own_size=True)
    _, opposite = match_heads(moved, (-scores, -values), own_size=True)

    def off(a: Tensor, b: Tensor) -> Tensor:
        return (a - b).flatten(1).norm(dim=1) / a.flatten(1).norm(dim=1)

    matched = off(moved[0], scores[partner]), off(moved[1], values[partner])
    return Heads(partner, cost / 2, *matched, opposite.amin(1) / 2)


@torch.no_grad()
def feature_action(layer: PatchAttention, axis: str = "left-right", *, of: str = "both") -> Float[Tensor, "d d"]:
    """The matrix T with E S = T E and p_τ(t) = T p_t, by least squares; with ``of="pixels"`` from the first condition alone.

    Then T = E S E⁺, and the second condition is a prediction.  Raises ValueError for another ``of``.
    """
    if of not in ("both", "pixels"):
        raise ValueError(f"of must be 'both' or 'pixels', got {of!r}")
    tau, sigma = actions(layer, axis)
    if of == "pixels":
        return layer.embed[:, sigma] @ torch.linalg.pinv(layer.embed)
    before = torch.cat([layer.embed, layer.positions.mT], 1)
    return torch.cat([layer.embed[:, sigma], layer.positions[tau].mT], 1) @ torch.linalg.pinv(before)


@torch.no_grad()
def positions_error(layer: PatchAttention, axis: str = "left-right", *, of: str = "both") -> float:
    """‖p_τ(t) − T p_t‖ / ‖p_t‖ over all tokens, with T from :func:`feature_action`."""
    tau, _ = actions(layer, axis)
    predicted = layer.positions @ feature_action(layer, axis, of=of).mT
    return float((layer.positions[tau] - predicted).norm() / layer.positions.norm())


@torch.no_grad()
def visible_positions_error(layer: PatchAttention, axis: str = "left-right") -> float:
    """How far the positions are from equivariant in what the function sees of them; there is no T to fit.

    That is Eᵀ M_hᵀ p_t, Eᵀ M_h (p_t − p̄) and R_h (p_t − p̄) for the matched heads, each kind divided by its norm over all heads.
    """
    tau, sigma = actions(layer, axis)
    scores, values, _ = layer.visible()
    partner, n = match(layer, axis).partner, len(sigma)
    kinds = scores[:, n:, :n].mT, scores[:, :n, n:], values[:, :, n:]
    off = [(k[:, sigma][:, :, tau] - k[partner]).norm() / k.norm() for k in kinds]
    return float(torch.stack(off).square().mean().sqrt())


def white_noise(layer: PatchAttention, count: int = 1000) -> Float[Tensor, "count tokens n"]:
    """Test samples for a layer, always the same."""
    generator = torch.Generator().manual_seed(5)
    return torch.randn(count, len(layer.positions), layer.embed.shape[1], generator=generator, dtype=torch.float64)


def measures(layer: PatchAttention) -> dict[str, float]:
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
    x: Float[Tensor, "count tokens n"], setting: Setting, *, measure_at: tuple[int, ...] = MEASURE_AT, progress: bool = True
) -> tuple[PatchAttention, Record]:
    """Train one layer and return it with its record, whose rows hold :func:`measures`."""
    layer = untrained(setting)
    record = train(
        layer,
        mirror_loss(x, setting),
        steps=setting.steps,
        seed=setting.seed,
        learning_rate=setting.learning_rate,
        weight_decay=setting.weight_decay,
        measure=measures,
        measure_at=measure_at,
        description=f"attention, noise × {setting.loudness:g}, seed {setting.seed}",
        progress=progress,
    )
    return layer, record


@torch.no_grad()
def outcome(layer: PatchAttention, record: Record, x: Float[Tensor, "count tokens n"]) -> dict[str, object]:
    """All that the book says of a trained layer, as numbers and lists for a JSON file; ``x`` are photographs it has not seen."""
    heads = match(layer)
    scores, values, _ = layer.visible()
    action = feature_action(layer)
    strengths = torch.linalg.svdvals(layer.embed)
    lists = {k: v.tolist() for k, v in asdict(heads).items() if k != "misfit"}
    return {
        **measures(layer),
        "end photographs": end_to_end(layer, x),
        "fate": heads.fate,
        **lists,
        "misfit": heads.misfit.tolist(),
        "score sizes": scores.flatten(1).norm(dim=1).tolist(),
        "value sizes": values.flatten(1).norm(dim=1).tolist(),
        "involution": float((action @ action - torch.eye(len(action))).norm() / len(action) ** 0.5),
        "weakest": float(strengths[-1] / strengths[0]),
        "reconstruction": float((layer(x) - x).square().mean() / x.square().mean()),
        "rows": record.rows,
    }


def recorded(variant: str) -> list[dict]:
    """The stored outcomes of one variant of ``benchmarks/heads.py``, one for each seed.  ValueError names the variants there are."""
    runs = json.loads((resources.files("samefn") / "results" / "heads.json").read_text("utf8"))["runs"]
    known = list(dict.fromkeys(run["variant"] for run in runs))
    if variant not in known:
        raise ValueError(f"variant must be one of {', '.join(known)}, got {variant!r}")
    return [run for run in runs if run["variant"] == variant]
