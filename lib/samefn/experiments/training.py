"""One training loop for every experiment of the book: AdamW with a one-cycle learning rate, seeded."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from operator import index
from typing import SupportsFloat, SupportsIndex, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import OneCycleLR
from tqdm.auto import tqdm

from ..arguments import Count, NonNegative, Positive, Seed

Network = TypeVar("Network", bound=nn.Module)
Loss = Callable[[Network, int, torch.Generator], Tensor]
Measure = Callable[[Network], Mapping[str, SupportsFloat]]


@dataclass(frozen=True)
class OneCycle:
    """AdamW for ``steps`` steps, the learning rate by ``OneCycleLR``: up to ``learning_rate`` and down again.

    The first momentum goes the other way.
    """

    steps: Count
    learning_rate: Positive = 3e-3
    weight_decay: NonNegative = 0.01


@dataclass
class Record:
    """What was measured while training: one row each time, with ``step``, ``loss`` and the measured values.

    ``loss`` is the mean over the steps since the row before, NaN where there were none.
    """

    rows: list[dict[str, float]] = field(default_factory=list)

    def __getitem__(self, name: str) -> list[float]:
        """The column ``name``, one value for each row.  Raises KeyError naming the columns there are."""
        if self.rows and name not in self.rows[0]:
            raise KeyError(f"no column {name!r}; there are {', '.join(self.rows[0])}")
        return [row[name] for row in self.rows]


def train(
    network: Network,
    loss: Loss[Network],
    plan: OneCycle,
    *,
    seed: Seed,
    measure: Measure[Network] | None = None,
    measure_at: Collection[SupportsIndex] = (),
    bar: str | None = "training",
) -> Record:
    """Train ``network`` in place and return what was measured.

    ``loss(network, step, generator)`` returns a scalar; it draws its batch with the generator, which is
    seeded by ``seed`` and the only source of chance: the same arguments give the same weights, and the
    global generators stay untouched.  The step counts from 0.  ``measure(network)`` is called without
    gradients after each number of steps in ``measure_at`` (0: before the first) and after the last.
    ``bar`` is what the progress bar says, None for no bar.

    Raises ValueError for a network without trainable parameters or times outside of the run; TypeError
    if the loss is no tensor, ValueError if it is no scalar, and FloatingPointError if it is not finite,
    naming the step.
    """
    _require_within(measure_at, plan.steps)
    optimizer, schedule = _adamw(network, plan)
    generator, times = torch.Generator().manual_seed(seed), {*measure_at, plan.steps}
    record, losses = Record(), []
    if 0 in times:
        record.rows.append(_row(0, losses, network, measure))
    with tqdm(range(plan.steps), desc=bar, disable=bar is None, mininterval=0.5) as steps:
        for step in steps:
            optimizer.zero_grad()
            value = _checked(loss(network, step, generator), step, plan.learning_rate)
            value.backward()
            optimizer.step()
            schedule.step()
            losses.append(value.item())
            if step + 1 in times:
                record.rows.append(_row(step + 1, losses, network, measure))
                losses = []
    return record


def _adamw(network: nn.Module, plan: OneCycle) -> tuple[torch.optim.AdamW, OneCycleLR]:
    trainable = [p for p in network.parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("network must have parameters that require a gradient, got none")
    rate = plan.learning_rate
    optimizer = torch.optim.AdamW(trainable, lr=rate, weight_decay=plan.weight_decay, fused=True)
    return optimizer, OneCycleLR(optimizer, rate, total_steps=plan.steps)


def _require_within(measure_at: Collection[SupportsIndex], steps: int) -> None:
    outside = [at for at in measure_at if not (isinstance(at, SupportsIndex) and 0 <= index(at) <= steps)]
    if outside:
        raise ValueError(f"measure_at must hold whole numbers between 0 and {steps} steps, got {outside}")


def _checked(value: object, step: int, learning_rate: float) -> Tensor:
    """``value`` if it is a loss."""
    if not isinstance(value, Tensor):
        raise TypeError(f"loss must return a torch.Tensor, got {type(value).__name__}")
    if value.dim() != 0 or not value.requires_grad:
        raise ValueError(f"loss must return a scalar that depends on the network, got {value.detach()}")
    if not torch.isfinite(value):
        raise FloatingPointError(
            f"the loss is {value.item()} at step {step}; lower learning_rate, {learning_rate}"
        )
    return value


@torch.no_grad()
def _row(
    step: int, losses: list[float], network: Network, measure: Measure[Network] | None
) -> dict[str, float]:
    """One row of a record; ``losses`` are those since the row before."""
    mean = sum(losses) / len(losses) if losses else math.nan
    measured = measure(network) if measure else {}
    return {"step": step, "loss": mean} | {name: float(number) for name, number in measured.items()}
