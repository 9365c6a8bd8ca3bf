"""What the two benchmarks of experiments share: arguments, runs side by side, the file they end in."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

import torch

from samefn.experiments import records
from samefn.experiments.protocol import MirrorSetting
from samefn.experiments.records import Run

Plan = Sequence[tuple[str, MirrorSetting]]  # every run, under the name of the variant it belongs to


def parser(about: str, experiment: str, seeds: int) -> argparse.ArgumentParser:
    """The arguments of every benchmark."""
    found = argparse.ArgumentParser(description=about)
    found.add_argument("--seeds", type=int, default=seeds, help="seeds at most for a variant")
    found.add_argument("--workers", type=int, default=2, help="runs side by side")
    found.add_argument("--only", nargs="+", metavar="VARIANT", help="only these variants")
    found.add_argument("--missing", action="store_true", help="only what the file does not hold yet")
    found.add_argument("--output", type=Path, default=records.results(experiment))
    return found


def record(plan: Plan, one: Callable[[MirrorSetting], Run], arguments: argparse.Namespace) -> list[Run]:
    """Run what is asked for, write after each run, and return all runs of the plan that are then there."""
    done = {}
    if arguments.output.exists():
        runs = json.loads(arguments.output.read_text("utf8"))["runs"]
        done = {_key(r["variant"], r["setting"]): r for r in runs}
    jobs = [
        (variant, setting)
        for variant, setting in plan
        if (arguments.only is None or variant in arguments.only)
        and not (arguments.missing and _key(variant, asdict(setting)) in done)
    ]
    arguments.output.parent.mkdir(exist_ok=True)
    order = [_key(variant, asdict(setting)) for variant, setting in plan]
    with ProcessPoolExecutor(arguments.workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        results = pool.map(one, [setting for _, setting in jobs])
        for count, ((variant, setting), result) in enumerate(zip(jobs, results), 1):
            run = {"variant": variant, "setting": asdict(setting), **result}
            done[_key(variant, asdict(setting))] = records.rounded(run)
            records.write(arguments.output, [done[k] for k in order if k in done])
            print(f"{count} of {len(jobs)}: {variant}, seed {setting.seed}", flush=True)
    return [done[k] for k in order if k in done]


def _key(variant: str, setting: dict) -> tuple[str, str]:
    """What tells two runs apart."""
    return variant, json.dumps(setting, sort_keys=True)
