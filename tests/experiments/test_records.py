"""The recorded runs: what the benchmarks plan, what the chapters read, and one run again."""

import importlib.util
import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from samefn.equivariance.images import AXES
from samefn.experiments import mirror_mlp, records
from samefn.experiments.data import digits
from samefn.experiments.mirror_mlp import bundled, errors
from samefn.experiments.records import EXPERIMENTS, recorded, rounded, write

BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


@pytest.fixture(params=EXPERIMENTS)
def experiment(request):
    return request.param


@pytest.fixture
def benchmark(experiment, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    spec = importlib.util.spec_from_file_location(f"benchmark_{experiment}", BENCHMARKS / f"{experiment}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def stored(experiment):
    return json.loads(records.results(experiment).read_text("utf8"))["runs"]


def same_json(a, b):
    """Equal, with NaN equal to NaN."""
    return json.dumps(a) == json.dumps(b)


def test_the_results_are_those_of_the_benchmark(experiment, benchmark):
    plan = benchmark.settings({"mirror": 5, "heads": 3}[experiment])
    runs = stored(experiment)
    assert [(r["variant"], r["setting"]) for r in runs] == [(v, asdict(s)) for v, s in plan]
    settings = [json.dumps(r["setting"]) for r in runs]
    assert len(set(settings)) == len(settings)


def test_the_results_hold_what_the_chapter_on_the_mirror_reads():
    steps = [*mirror_mlp.MEASURE_AT, 6000]
    measured = {f"{layer} {axis}" for layer in ("f1", "f2", "f3", "end") for axis in AXES}
    names = {"classifier": digits().name, "autoencoder": "12 × 12 grey patches"}
    for r in stored("mirror"):
        assert r["images"] == names[r["setting"]["task"]]
        assert [row["step"] for row in r["rows"]] == steps
        assert set(r["errors"]) == measured
        assert all({*row} == measured | {"step", "loss"} for row in r["rows"])
        assert all(len(column) == 32 for column in r["units"].values())
        assert sorted(r["units"]["partner"]) == list(range(32))
        assert ("accuracy" in r) == (r["setting"]["task"] == "classifier")
        # the last row is of the same network as the errors, on fewer samples
        for name in measured:
            assert r["rows"][-1][name] == pytest.approx(r["errors"][name], rel=0.05)


def test_the_results_hold_what_the_chapter_on_heads_reads():
    runs = recorded("heads", "3 × 3 tokens")
    assert len(runs) >= 3 and [r["setting"]["seed"] for r in runs] == list(range(len(runs)))
    assert all(r["setting"]["columns"] == 3 and len(r["fate"]) == 6 for r in runs)


def test_recorded_gives_the_runs_of_a_variant(experiment):
    runs = stored(experiment)
    for variant in dict.fromkeys(r["variant"] for r in runs):
        expected = [r for r in runs if r["variant"] == variant]
        assert same_json(recorded(experiment, variant), expected)
        for name in expected[0]["setting"]:
            for value in {r["setting"][name] for r in expected}:
                found = [r for r in expected if r["setting"][name] == value]
                assert same_json(recorded(experiment, variant, **{name: value}), found) and found


def test_what_a_reader_changes_stays_his():
    before = recorded("heads", "4 × 4 tokens")
    recorded("heads", "4 × 4 tokens")[0]["fate"].clear()
    assert same_json(recorded("heads", "4 × 4 tokens"), before)


@pytest.mark.parametrize(
    ("asked", "setting", "message"),
    [
        (("birds", "autoencoder"), {}, "experiment must be one of mirror, heads, got 'birds'"),
        (
            ("mirror", "transformer"),
            {},
            "variant must be one of autoencoder, classifier, .*, got 'transformer'",
        ),
        (("heads", "none"), {}, "variant must be one of 3 × 3 tokens, .*, got 'none'"),
        (
            ("mirror", "classifier"),
            {"activation": "relu"},
            "activation must be one of tanh, gelu for 'classifier', got 'relu'",
        ),
        (("heads", "3 × 3 tokens"), {"loudness": 3.0}, "setting must be one of seed, .*, got 'loudness'"),
    ],
)
def test_what_is_not_recorded(asked, setting, message):
    with pytest.raises(ValueError, match=message):
        recorded(*asked, **setting)


def test_numbers_are_rounded_wherever_they_stand():
    value = {"a": [1 / 3, {"b": 123456789.0}], "c": float("nan"), "d": 7, "e": "text", "f": True}
    expected = {"a": [0.333333, {"b": 123457000.0}], "c": None, "d": 7, "e": "text", "f": True}
    assert rounded(value) == expected


def test_what_is_written_can_be_read(tmp_path):
    path, runs = (
        tmp_path / "runs.json",
        [{"variant": "3 × 3", "loss": 2 / 3}, {"variant": "b", "loss": float("nan")}],
    )
    for count in (1, 2):
        write(path, runs[:count])
        content = json.loads(path.read_text("utf8"))
        assert content == {"torch": torch.__version__, "runs": rounded(runs[:count])}
    assert len(path.read_text("utf8").splitlines()) == 4 and list(tmp_path.iterdir()) == [path]


def test_what_is_there_is_written_as_it_is(experiment, tmp_path):
    path, file = tmp_path / "again.json", records.results(experiment).read_text("utf8")
    write(path, stored(experiment))
    assert path.read_text("utf8").split("\n", 1)[1] == file.split("\n", 1)[1]


def test_one_run_of_the_results_again():
    """The whole training of one classifier.

    Training is float64, and rounding hardly grows in it: initial weights changed by 1e-15 of themselves
    change these errors by at most 2e-13 of themselves, weights changed by 1e-9 by at most 1e-7.  The
    noise is drawn in float32, by an approximation that depends on the processor's instructions; without
    AVX2 the errors change by 3e-6.  The file has six digits, that is 5e-6.  Another seed changes them
    by 77 %, a mirror weight of 1.01 by 0.9 %, noise of standard deviation 1.001 by 0.07 %.
    """
    saved = recorded("mirror", "classifier", activation="tanh")[0]
    setting = mirror_mlp.Setting(**saved["setting"])
    assert (setting.task, setting.seed, setting.steps) == ("classifier", 0, 6000)
    images = bundled("classifier")
    network, _ = mirror_mlp.run(images, setting, progress=False)
    assert errors(network, images.shape) == pytest.approx(saved["errors"], rel=1e-4)
    right = (network(images.vectors()).argmax(1) == images.labels).double().mean()
    assert saved["accuracy"] == pytest.approx(float(right), abs=1e-3)  # one digit of 1,797 may be on the edge
