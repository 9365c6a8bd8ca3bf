"""The experiment of the chapter on trained attention heads, for several seeds and variants.

Runs two trainings side by side, writes the recorded runs that the chapter reads, and prints a Markdown
table. About six minutes on two idle cores.  ``--seeds N``, ``--only VARIANT ...`` and ``--missing`` run
fewer and leave the other runs in the file as they are, ``--output FILE`` writes elsewhere, ``--workers
1`` runs one at a time.
"""

from __future__ import annotations

import time
from statistics import median

import recording
from samefn.experiments.mirror_attention import Setting, outcome, photographs, run
from samefn.experiments.records import Run

VARIANTS = {  # name: how many seeds at most, setting
    "3 × 3 tokens": (5, {"columns": 3}),
    "4 × 4 tokens": (5, {}),
    "4 × 4 tokens, noise × 1": (3, {"noise_scale": 1.0}),
}
COLUMNS = (
    *("end", "end up-down", "visible", "visible up-down", "positions", "positions up-down"),
    *("predicted", "median head", "reconstruction"),
)


def settings(seeds: int) -> list[tuple[str, Setting]]:
    """Every run, under the name of the variant it belongs to."""
    return [
        (variant, Setting(seed=seed, **options))
        for variant, (most, options) in VARIANTS.items()
        for seed in range(min(seeds, most))
    ]


def one(setting: Setting) -> Run:
    """Train and measure one layer."""
    start = time.perf_counter()
    layer, record = run(photographs(setting.columns), setting, progress=False)
    seconds = round(time.perf_counter() - start, 1)
    unseen = photographs(setting.columns, 2000, seed=9)
    return {"seconds": seconds, **outcome(layer, record, unseen)}


def show(runs: list[Run]) -> None:
    """One row for each run, then the medians of each variant."""
    print("| variant | seed | fates | " + " | ".join(COLUMNS) + " | s |")
    print("|---|---:|---|" + "---:|" * (len(COLUMNS) + 1))
    for r in runs:
        fates = ", ".join(f"{r['fate'].count(f)} {f}" for f in dict.fromkeys(r["fate"]))
        cells = " | ".join(f"{r[name]:.3f}" for name in COLUMNS)
        print(f"| {r['variant']} | {r['setting']['seed']} | {fates} | {cells} | {r['seconds']:.0f} |")
    for variant in dict.fromkeys(r["variant"] for r in runs):
        group = [r for r in runs if r["variant"] == variant]
        print(variant, {name: f"{median(r[name] for r in group):.3f}" for name in COLUMNS})


def main() -> None:
    arguments = recording.parser(__doc__.splitlines()[0], "heads", seeds=3).parse_args()
    show(recording.record(settings(arguments.seeds), one, arguments))


if __name__ == "__main__":
    main()
