"""The recorded runs of the experiments, which travel with the library: read, rounded and written."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

EXPERIMENTS = ("mirror", "heads")  # of the chapters equivariance/mirror and equivariance/heads
Run = dict[str, Any]  # variant, setting, seconds and what the experiment's outcome says


def results(experiment: str) -> Path:
    """The file of an experiment's runs.  Raises ValueError naming the experiments there are."""
    if experiment not in EXPERIMENTS:
        raise ValueError(f"experiment must be one of {', '.join(EXPERIMENTS)}, got {experiment!r}")
    return Path(__file__).parent / "results" / f"{experiment}.json"


def recorded(experiment: str, variant: str, **setting: object) -> list[Run]:
    """The runs of one variant, those with ``setting`` in theirs, for instance ``activation="tanh"``.

    A run says its ``variant``, its ``setting``, the ``seconds`` it took and what was measured.  Raises
    ValueError naming the experiments, variants, names or values there are.
    """
    runs = _parsed(experiment)
    _require_known("variant", variant, [run["variant"] for run in runs])
    runs = [run for run in runs if run["variant"] == variant]
    for name, value in setting.items():
        _require_known("setting", name, list(runs[0]["setting"]))
        _require_known(name, value, [run["setting"][name] for run in runs], f" for {variant!r}")
        runs = [run for run in runs if run["setting"][name] == value]
    return copy.deepcopy(runs)  # what a reader does to his runs stays his


@cache
def _parsed(experiment: str) -> list[Run]:
    return json.loads(results(experiment).read_text("utf8"))["runs"]


def _require_known(name: str, value: object, known: Sequence[object], where: str = "") -> None:
    if value not in known:
        one_of = ", ".join(map(str, dict.fromkeys(known)))
        raise ValueError(f"{name} must be one of {one_of}{where}, got {value!r}")


def rounded(value: Any) -> Any:
    """Six significant digits: the runs agree between machines to no more, and the file stays small.

    Dictionaries and lists are rounded entry by entry; NaN becomes None, because JSON knows no NaN.
    """
    if isinstance(value, float):
        return None if math.isnan(value) else float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def write(path: Path, runs: Sequence[Run]) -> None:
    """The runs, rounded, one line for each; the old file stays until the new one is complete."""
    lines = ",\n".join(json.dumps(rounded(run)) for run in runs)
    unfinished = path.with_suffix(".part")
    unfinished.write_text(f'{{"torch": "{torch.__version__}", "runs": [\n{lines}\n]}}\n')
    unfinished.replace(path)
