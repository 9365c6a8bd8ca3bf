"""The experiment of the chapter on mirror images, for all seeds, activations and variants.

Runs two trainings side by side, writes the recorded runs that the chapter reads, and prints a Markdown
table. About half an hour on two cores.  ``--cifar10 FOLDER`` trains on CIFAR-10 instead, with 64
filters (several GB of memory), ``--output FILE`` writes elsewhere; ``--seeds N``, ``--only VARIANT
...`` and ``--missing`` run fewer and leave the other runs in the file as they are.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median

import torch

import recording
from cifar10 import cifar10
from samefn.experiments.data import Images
from samefn.experiments.mirror_mlp import MEASURE_AT, Setting, bundled, outcome, run
from samefn.experiments.records import Run

COLUMNS = ("f1 left-right", "f2 left-right", "f1 up-down", "end left-right")


def settings(seeds: int) -> list[tuple[str, Setting]]:
    """Every run, under the name of the variant it belongs to."""
    both = ("tanh", "gelu")
    all_four = (*both, "silu", "relu")
    few, two = min(seeds, 3), min(seeds, 2)
    plan = [
        ("autoencoder", all_four, seeds, {}),
        ("classifier", both, seeds, {"task": "classifier", "mirror_weight": 1.0}),
        ("classifier, mirror weight 10", both, few, {"task": "classifier"}),
        ("mirror weight 1", all_four, 1, {"mirror_weight": 1.0}),
        ("mirror weight 100", all_four, 1, {"mirror_weight": 100.0}),
        ("noise of standard deviation 2", both, few, {"noise_scale": 2.0}),
        (
            "classifier, no weight decay",
            both,
            few,
            {"task": "classifier", "mirror_weight": 1.0, "weight_decay": 0.0},
        ),
        ("no weight decay", both, two, {"weight_decay": 0.0}),
        ("mirror loss from the first step", both, two, {"mirror_from": 0.0}),
    ]
    return [
        (variant, Setting(activation=activation, seed=seed, **options))
        for variant, activations, count, options in plan
        for seed in range(count)
        for activation in activations
    ]


@cache
def load(folder: Path) -> Images:
    """CIFAR-10, once in each process."""
    return cifar10(folder)


def one(setting: Setting, folder: Path | None = None) -> Run:
    """Train and measure one network."""
    images = load(folder) if folder else bundled(setting.task)
    start = time.perf_counter()
    network, record = run(images, setting, measure_at=MEASURE_AT, progress=False)
    seconds = round(time.perf_counter() - start, 1)
    result = outcome(network, record, images.shape, noise_scale=setting.noise_scale)
    if setting.task == "classifier":
        with torch.no_grad():
            right = network(images.vectors()).argmax(1) == images.labels
        result["accuracy"] = float(right.double().mean())  # on the images it was trained on
    return {"images": images.name, "seconds": seconds, **result}


def show(runs: list[Run]) -> None:
    """One row for each variant and activation: median and range over the seeds."""
    print("| variant | activation | seeds | " + " | ".join(COLUMNS) + " | A_1 to Q | s |")
    print("|---|---|---:|" + "---:|" * (len(COLUMNS) + 2))
    for variant, activation in dict.fromkeys((r["variant"], r["setting"]["activation"]) for r in runs):
        group = [r for r in runs if (r["variant"], r["setting"]["activation"]) == (variant, activation)]
        columns = [[r["errors"][name] for r in group] for name in COLUMNS] + [[r["distance"] for r in group]]
        cells = [f"{median(c):.3f} ({min(c):.3f}–{max(c):.3f})" for c in columns]
        seconds = median(r["seconds"] for r in group)
        print(f"| {variant} | {activation} | {len(group)} | " + " | ".join(cells) + f" | {seconds:.0f} |")


def main() -> None:
    parser = recording.parser(__doc__.splitlines()[0], "mirror", seeds=5)
    parser.add_argument("--cifar10", type=Path, help="folder cifar-10-batches-py")
    arguments = parser.parse_args()
    plan = settings(arguments.seeds)
    if arguments.cifar10:
        plan = [(variant, replace(setting, width=64)) for variant, setting in plan]
    show(recording.record(plan, partial(one, folder=arguments.cifar10), arguments))


if __name__ == "__main__":
    main()
