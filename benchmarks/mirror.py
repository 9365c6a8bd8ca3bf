"""The experiment of the chapter on mirror images, for all seeds, activations and variants.

Runs two trainings side by side, writes ``lib/samefn/results/mirror.json``, which the chapter reads, and prints
a Markdown table.  About half an hour on two cores.  ``--cifar10 FOLDER`` trains on CIFAR-10 instead, with 64 filters (several GB of memory),
``--output FILE`` writes elsewhere; ``--seeds N``, ``--only VARIANT ...`` and ``--missing`` run fewer and leave the other
runs in the file as they are.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from statistics import median

import torch

from samefn.datasets import Images, cifar10
from samefn.mirror import MEASURE_AT, Setting, bundled, outcome, run

RESULTS = Path(__file__).parents[1] / "lib" / "samefn" / "results" / "mirror.json"


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
        ("classifier, no weight decay", both, few, {"task": "classifier", "mirror_weight": 1.0, "weight_decay": 0.0}),
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


def one(job: tuple[str, Setting, Path | None]) -> dict[str, object]:
    """Train and measure one network."""
    variant, setting, folder = job
    torch.set_num_threads(1)
    images = load(folder) if folder else bundled(setting.task)
    start = time.perf_counter()
    network, record = run(images, setting, measure_at=MEASURE_AT, progress=False)
    seconds = round(time.perf_counter() - start, 1)
    result = outcome(network, record, images.shape, setting.noise_scale)
    if setting.task == "classifier":
        with torch.no_grad():
            right = network(images.vectors()).argmax(1) == images.labels
        result["accuracy"] = float(right.double().mean())  # on the images it was trained on
    return {"variant": variant, "images": images.name, "setting": asdict(setting), "seconds": seconds, **result}


def show(runs: list[dict]) -> None:
    """One row for each variant and activation: median and range over the seeds."""
    names = ["f1 left-right", "f2 left-right", "f1 up-down", "end left-right"]
    print("| variant | activation | seeds | " + " | ".join(names) + " | A_1 to Q | s |")
    print("|---|---|---:|" + "---:|" * (len(names) + 2))
    for variant, activation in dict.fromkeys((r["variant"], r["setting"]["activation"]) for r in runs):
        group = [r for r in runs if (r["variant"], r["setting"]["activation"]) == (variant, activation)]
        columns = [[r["errors"][name] for r in group] for name in names] + [[r["distance"] for r in group]]
        cells = [f"{median(c):.3f} ({min(c):.3f}–{max(c):.3f})" for c in columns]
        seconds = median(r["seconds"] for r in group)
        print(f"| {variant} | {activation} | {len(group)} | " + " | ".join(cells) + f" | {seconds:.0f} |")


def rounded(value: object) -> object:
    """Six significant digits: the runs agree between machines to no more, and the file stays small."""
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")  # JSON knows no NaN
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="only these variants")
    parser.add_argument("--missing", action="store_true", help="only what the file does not hold yet")
    parser.add_argument("--cifar10", type=Path, help="folder cifar-10-batches-py")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    plan = settings(arguments.seeds)
    if arguments.cifar10:
        plan = [(variant, replace(setting, width=64)) for variant, setting in plan]
    jobs = [(v, s, arguments.cifar10) for v, s in plan if arguments.only is None or v in arguments.only]
    arguments.output.parent.mkdir(exist_ok=True)
    done = {}
    if arguments.output.exists():
        done = {key(r): r for r in json.loads(arguments.output.read_text())["runs"]}
    order = [key({"variant": v, "setting": asdict(s)}) for v, s in plan]
    if arguments.missing:
        jobs = [(v, s, i) for v, s, i in jobs if key({"variant": v, "setting": asdict(s)}) not in done]
    with ProcessPoolExecutor(2) as pool:
        for count, result in enumerate(pool.map(one, jobs), 1):
            done[key(result)] = rounded(result)
            write(arguments.output, [done[k] for k in order if k in done])
            print(f"{count} of {len(jobs)}: {result['variant']}, {result['setting']['activation']}", flush=True)
    show([done[k] for k in order if k in done])


def write(path: Path, runs: list[dict]) -> None:
    """One line for each run; the old file stays until the new one is complete."""
    lines = ",\n".join(json.dumps(r) for r in runs)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(f'{{"torch": "{torch.__version__}", "runs": [\n{lines}\n]}}\n')
    unfinished.replace(path)


def key(result: dict) -> tuple[str, str]:
    """What tells two runs apart."""
    return result["variant"], json.dumps(result["setting"])


if __name__ == "__main__":
    main()
