"""The experiment of the chapter on trained attention heads, for several seeds and variants.

Runs two trainings side by side, writes ``lib/samefn/results/heads.json``, which the chapter reads, and prints a
Markdown table.  About six minutes on two idle cores.  ``--seeds N`` and ``--only WORD`` run fewer, ``--output FILE``
writes elsewhere, ``--workers 1`` runs one at a time.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from statistics import median

import torch
from mirror import rounded, write  # the script beside this one

from samefn.heads import Setting, outcome, photographs, run

RESULTS = Path(__file__).parents[1] / "lib" / "samefn" / "results" / "heads.json"
VARIANTS = {  # name: how many seeds at most, setting
    "3 × 3 tokens": (5, {"columns": 3}),
    "4 × 4 tokens": (5, {}),
    "4 × 4 tokens, noise × 1": (3, {"loudness": 1.0}),
}


def one(job: tuple[str, Setting]) -> dict[str, object]:
    """Train and measure one layer."""
    variant, setting = job
    torch.set_num_threads(1)
    start = time.perf_counter()
    layer, record = run(photographs(setting.columns), setting, measure_at=(), progress=False)
    seconds = round(time.perf_counter() - start, 1)
    unseen = photographs(setting.columns, 2000, seed=9)
    return {"variant": variant, "setting": asdict(setting), "seconds": seconds, **outcome(layer, record, unseen)}


def show(runs: list[dict]) -> None:
    """One row for each run."""
    names = ["end", "end up-down", "visible", "visible up-down", "positions", "positions up-down", "predicted", "median head", "reconstruction"]
    print("| variant | seed | fates | " + " | ".join(names) + " | s |")
    print("|---|---:|---|" + "---:|" * (len(names) + 1))
    for r in runs:
        fates = ", ".join(f"{r['fate'].count(f)} {f}" for f in dict.fromkeys(r["fate"]))
        cells = " | ".join(f"{r[name]:.3f}" for name in names)
        print(f"| {r['variant']} | {r['setting']['seed']} | {fates} | {cells} | {r['seconds']:.0f} |")
    for variant in dict.fromkeys(r["variant"] for r in runs):
        group = [r for r in runs if r["variant"] == variant]
        print(variant, {name: f"{median(r[name] for r in group):.3f}" for name in names})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", default="", help="only variants with this in their name")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    jobs = [
        (variant, Setting(seed=seed, **options))
        for seed in range(arguments.seeds)
        for variant, (most, options) in VARIANTS.items()
        if arguments.only in variant and seed < most
    ]
    arguments.output.parent.mkdir(exist_ok=True)
    runs = []
    with ProcessPoolExecutor(arguments.workers) as pool:
        for result in pool.map(one, jobs):
            runs.append(result)
            print(f"{len(runs)} of {len(jobs)}: {result['variant']}, seed {result['setting']['seed']}", flush=True)
            runs.sort(key=lambda r: list(VARIANTS).index(r["variant"]))
            write(arguments.output, [rounded(r) for r in runs])
    show(runs)


if __name__ == "__main__":
    main()
