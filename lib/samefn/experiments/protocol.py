"""What the mirror experiments share: a task, and from some step on also to commute with a mirror."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from ..arguments import Count, NonNegative, Positive, Seed, Share
from .training import Loss, OneCycle

Mirror = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class MirrorSetting:
    """The numbers of one run.

    The mirror loss is ``mirror_weight`` times the mean squared violation over ``batch`` samples of the
    data and ``noise`` samples of white noise of standard deviation ``noise_scale``, from the fraction
    ``mirror_from`` of the ``steps`` on.  Raises TypeError or ValueError, naming the number,
    for one that cannot be.
    """

    seed: Seed = 0
    steps: Count
    batch: Count
    noise: Count
    noise_scale: NonNegative = 1.0
    mirror_weight: NonNegative = 10.0
    mirror_from: Share = 0.3
    learning_rate: Positive
    weight_decay: NonNegative = 0.01

    @property
    def plan(self) -> OneCycle:
        """The optimiser's part of the setting."""
        return OneCycle(self.steps, self.learning_rate, self.weight_decay)


def mirror_loss(
    x: Float[Tensor, "count *shape"],
    setting: MirrorSetting,
    task: Callable[[Tensor, Int[Tensor, "batch"]], Tensor],
    *,
    move: Mirror,
    move_output: Mirror,
    noise_dtype: torch.dtype = torch.float64,
) -> Loss[nn.Module]:
    """The loss of a run on the data ``x``: the task's, and the mirror's after its start.

    ``task(y, chosen)`` is the task's loss for the outputs y on x[chosen]; ``move`` and ``move_output``
    are what the mirror does to inputs and outputs.  Noise is drawn in ``noise_dtype``; the arithmetic
    is that of x.
    """

    if x.numel() == 0:
        raise ValueError(f"x must not be empty, got shape {tuple(x.shape)}")

    def loss(network: nn.Module, step: int, generator: torch.Generator) -> Tensor:
        chosen = torch.randint(len(x), (setting.batch,), generator=generator)
        if step < setting.mirror_from * setting.steps:
            return task(network(x[chosen]), chosen)
        noise = torch.randn(setting.noise, *x.shape[1:], generator=generator, dtype=noise_dtype).to(x.dtype)
        batch = torch.cat([x[chosen], setting.noise_scale * noise])
        y, moved = network(torch.cat([batch, move(batch)])).split(len(batch))
        violation = (moved - move_output(y)).square().mean()
        return task(y[: setting.batch], chosen) + setting.mirror_weight * violation

    return loss
