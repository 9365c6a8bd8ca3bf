"""One training loop for every experiment of the book: AdamW with a one-cycle learning rate, seeded and resumable."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

Loss = Callable[[nn.Module, int, torch.Generator], Tensor]
Measure = Callable[[nn.Module], dict[str, float]]


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
    network: nn.Module,
    loss: Loss,
    *,
    steps: int,
    seed: int,
    learning_rate: float = 3e-3,
    weight_decay: float = 0.01,
    measure: Measure | None = None,
    measure_at: Collection[int] = (),
    checkpoint: str | Path | None = None,
    save_every: int = 1000,
    about: Mapping[str, object] | None = None,
    description: str = "training",
    progress: bool = True,
) -> Record:
    """Train ``network`` in place for ``steps`` steps and return what was measured.

    ``loss(network, step, generator)`` returns a scalar; it draws its batch with the generator, which is
    seeded by ``seed`` and the only source of chance: the same arguments give the same weights, and the
    global generators stay untouched.  The step counts from 0.  The optimizer is AdamW, the learning rate
    follows ``OneCycleLR`` up to ``learning_rate`` and down again, and the first momentum the other way.  ``measure(network)`` is called without gradients after
    each number of steps in ``measure_at`` (0: before the first) and after the last.

    With ``checkpoint``, the whole state is saved to that file every ``save_every`` steps and at the end; if the
    file exists, training goes on from there and ends with the weights and the record it would have had uninterrupted.
    ``about`` says what the loss depends on, in plain numbers and strings: it is saved too, so that a checkpoint of
    another loss is refused.  ``progress`` shows a bar.

    Raises ValueError for steps below 1, a network without trainable parameters, times outside of the run, or a
    checkpoint of another run; FileNotFoundError if the checkpoint's folder does not exist; TypeError if the loss is no
    tensor, ValueError if it is no scalar, and FloatingPointError if it is not finite, naming the step.
    """
    if steps < 1 or save_every < 1:
        raise ValueError(f"steps and save_every must be at least 1, got {steps} and {save_every}")
    trainable = [p for p in network.parameters() if p.requires_grad]
    if not trainable:
        raise ValueError("network must have parameters that require a gradient, got none")
    outside = [at for at in measure_at if not (isinstance(at, Integral) and 0 <= at <= steps)]
    if outside:
        raise ValueError(f"measure_at must hold whole numbers between 0 and {steps} steps, got {outside}")
    if checkpoint is not None and not Path(checkpoint).parent.is_dir():
        raise FileNotFoundError(f"checkpoint must be a file in an existing folder, got {checkpoint}")
    learning_rate, weight_decay = float(learning_rate), float(weight_decay)  # a checkpoint holds plain numbers, not NumPy's
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(trainable, lr=learning_rate, weight_decay=weight_decay, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, learning_rate, total_steps=steps)
    run = _Run(network, optimizer, schedule, generator)
    setting = {
        **(about or {}),
        "steps": steps,
        "seed": seed,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
        "measure_at": sorted({int(at) for at in measure_at}),
        "trainable": [name for name, p in network.named_parameters() if p.requires_grad],
    }
    if checkpoint is not None and Path(checkpoint).exists():
        run.load(Path(checkpoint), setting)
    times = {*measure_at, steps}

    def note() -> None:
        if run.step in times and (not run.rows or run.rows[-1]["step"] < run.step):
            mean = run.total / run.counted if run.counted else float("nan")
            with torch.no_grad():
                measured = {name: float(number) for name, number in (measure(network) if measure else {}).items()}
            run.rows.append({"step": run.step, "loss": mean, **measured})
            run.total, run.counted = 0.0, 0

    note()
    with tqdm(total=steps, initial=run.step, desc=description, disable=not progress, mininterval=0.5) as bar:
        while run.step < steps:
            optimizer.zero_grad()
            value = loss(network, run.step, generator)
            if not isinstance(value, Tensor):
                raise TypeError(f"loss must return a torch.Tensor, got {type(value).__name__}")
            if value.dim() != 0 or not value.requires_grad:
                raise ValueError(f"loss must return a scalar that depends on the network, got {value.detach()}")
            number = value.item()
            if not math.isfinite(number):
                raise FloatingPointError(f"the loss is {number} at step {run.step}; lower learning_rate, {learning_rate}")
            value.backward()
            optimizer.step()
            schedule.step()
            run.step, run.total, run.counted = run.step + 1, run.total + number, run.counted + 1
            bar.update()
            note()
            if checkpoint is not None and (run.step % save_every == 0 or run.step == steps):
                run.save(Path(checkpoint), setting)
    return Record(run.rows)


@dataclass
class _Run:
    """Everything that the rest of a run depends on."""

    network: nn.Module
    optimizer: torch.optim.Optimizer
    schedule: torch.optim.lr_scheduler.LRScheduler
    generator: torch.Generator
    step: int = 0
    total: float = 0.0
    counted: int = 0
    rows: list[dict[str, float]] = field(default_factory=list)

    def save(self, path: Path, setting: dict) -> None:
        state = {
            "setting": setting,
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "generator": self.generator.get_state(),
            "progress": (self.step, self.total, self.counted, self.rows),
        }
        unfinished = path.with_name(path.name + ".part")
        torch.save(state, unfinished)
        os.replace(unfinished, path)  # an interruption leaves the old file, never half a new one

    def load(self, path: Path, setting: dict) -> None:
        try:
            state = torch.load(path, weights_only=True)
            theirs, saved = dict(state["setting"]), _shapes(state["network"])
            step, total, counted, rows = state["progress"]
        except Exception as error:  # torch.load raises many kinds; the cause is kept
            raise ValueError(f"checkpoint {path} is not one of train()'s ({type(error).__name__})") from error
        if (ours := _shapes(self.network.state_dict())) != saved:
            name = next(n for n in {**saved, **ours} if saved.get(n) != ours.get(n))
            raise ValueError(f"checkpoint {path} belongs to a network with {name} of {saved.get(name)}, got {ours.get(name)}")
        for name in {**theirs, **setting}:
            if theirs.get(name) != setting.get(name):
                raise ValueError(f"checkpoint {path} belongs to a run with {name} = {theirs.get(name)}, got {setting.get(name)}")
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule.load_state_dict(state["schedule"])
        self.generator.set_state(state["generator"])
        self.step, self.total, self.counted, self.rows = step, total, counted, rows


def _shapes(state: dict[str, Tensor]) -> dict[str, str]:
    return {name: f"shape {tuple(p.shape)}, {p.dtype}" for name, p in state.items()}
