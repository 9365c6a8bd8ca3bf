"""The training loop: the same weights every time, also after an interruption, and the right optimizer."""

import dataclasses
import math
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from samefn.networks import DeepMLP
from samefn.training import Record, train

settings.register_profile("fixed", derandomize=True, deadline=None, max_examples=25)
settings.load_profile("fixed")


def network(seed=0, sizes=(3, 5, 2)):
    g = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=g, dtype=torch.float64).requires_grad_()  # noqa: E731
    pairs = list(zip(sizes, sizes[1:]))
    return DeepMLP([draw(m, n) for n, m in pairs], [draw(m) for n, m in pairs], "tanh")


def regression(net, step, generator):
    """Learn to reverse the first two inputs, on 8 draws with noise; the step matters too."""
    x = torch.randn(8, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(8, 2, generator=generator, dtype=torch.float64)
    return (net(x) - x[:, :2].flip(1) - 0.1 * noise).square().mean() * (1 + step / 100)


def size(net):
    return {"size": sum(p.square().sum() for p in net.parameters())}


def weights(net):
    return [p.detach().clone() for p in net.parameters()]


def same(a, b):
    return all(map(torch.equal, a, b))


def same_rows(a, b):
    """Bitwise, with NaN equal to NaN."""
    return [{k: float(v).hex() for k, v in row.items()} for row in a] == [
        {k: float(v).hex() for k, v in row.items()} for row in b
    ]


class Interruption(Exception):
    pass


def interrupted(function, at):
    """The function, which raises the ``at``-th time (from 0) it is called."""
    calls = 0

    def call(*arguments):
        nonlocal calls
        calls += 1
        if calls == at + 1:
            raise Interruption
        return function(*arguments)

    return call


# ---------------------------------------------------------------------------------------------
# Reproducible


def test_the_seed_decides_everything_and_nothing_else_does():
    runs = {}
    for name, seed in (("one", 5), ("again", 5), ("other", 6)):
        net = network()
        torch.manual_seed(len(runs))  # must not matter
        record = train(net, regression, steps=30, seed=seed, measure=size, measure_at=[10, 20], progress=False)
        runs[name] = weights(net), record.rows
    assert same(runs["one"][0], runs["again"][0]) and same_rows(runs["one"][1], runs["again"][1])
    assert not same(runs["one"][0], runs["other"][0])


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_global_generators_stay_untouched(tmp_path, checkpoint):
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy(), random.getstate()
    options = {"checkpoint": tmp_path / "run"} if checkpoint else {}
    for _ in range(2):  # the second time it loads
        train(network(), regression, steps=5, seed=0, save_every=2, measure=size, progress=False, **options)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1]) and random.getstate() == before[2]


def by_hand(net, loss, *, steps, seed, learning_rate, weight_decay):
    """AdamW (Loshchilov and Hutter, Algorithm 2) and the one-cycle schedule, which moves the momentum too, from their formulas."""
    generator = torch.Generator().manual_seed(seed)
    parameters = [p.detach().clone() for p in net.parameters()]
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    peak, losses = 0.3 * steps - 1, []

    def between(start, end, fraction):
        return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2

    for step in range(steps):
        if step <= peak:
            rate, beta = (between(a, b, step / peak) for a, b in ((learning_rate / 25, learning_rate), (0.95, 0.85)))
        else:
            done = (step - peak) / (steps - 1 - peak)
            rate, beta = (between(a, b, done) for a, b in ((learning_rate, learning_rate / 25e4), (0.85, 0.95)))
        with torch.no_grad():
            for p, q in zip(net.parameters(), parameters):
                p.copy_(q)
        value = loss(net, step, generator)
        losses.append(value.item())
        for k, g in enumerate(torch.autograd.grad(value, list(net.parameters()))):
            first[k] = beta * first[k] + (1 - beta) * g
            second[k] = 0.999 * second[k] + 0.001 * g**2
            m, v = first[k] / (1 - beta ** (step + 1)), second[k] / (1 - 0.999 ** (step + 1))
            parameters[k] = (1 - rate * weight_decay) * parameters[k] - rate * m / (v.sqrt() + 1e-8)
    return parameters, losses


@given(st.integers(7, 60), st.integers(0, 100), st.sampled_from([1e-3, 0.05]), st.sampled_from([0.0, 0.01, 0.5]))
def test_it_is_adamw_with_one_cycle(steps, seed, learning_rate, weight_decay):
    options = {"steps": steps, "seed": seed, "learning_rate": learning_rate, "weight_decay": weight_decay}
    net = network(seed)
    record = train(net, regression, **options, progress=False)
    expected, losses = by_hand(network(seed), regression, **options)
    for p, q in zip(net.parameters(), expected):
        torch.testing.assert_close(p.detach(), q, rtol=1e-8, atol=1e-10)
    assert record["loss"] == [pytest.approx(sum(losses) / steps, rel=1e-10)]


def test_the_defaults_are_those_of_the_docstring():
    net = network()
    train(net, regression, steps=40, seed=1, progress=False)
    expected, _ = by_hand(network(), regression, steps=40, seed=1, learning_rate=3e-3, weight_decay=0.01)
    torch.testing.assert_close(weights(net), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_shortest_runs(steps):
    net = network()
    record = train(net, regression, steps=steps, seed=0, measure_at=range(steps + 1), progress=False)
    assert record["step"] == list(range(steps + 1)) and not same(weights(net), weights(network()))


def test_only_what_requires_a_gradient_is_trained():
    net = network()
    net.weights[0].requires_grad_(False)
    before = weights(net)
    train(net, regression, steps=3, seed=0, progress=False)
    assert [torch.equal(a, b) for a, b in zip(before, weights(net))] == [True, False, False, False]


# ---------------------------------------------------------------------------------------------
# The record


@given(st.sets(st.integers(0, 20)), st.integers(20, 25))
def test_the_record_has_the_mean_losses_and_what_was_measured_when(times, steps):
    losses, measured, net = [], [], network()

    def loss(net, step, generator):
        assert step == len(losses) and torch.is_grad_enabled()
        value = regression(net, step, generator)
        losses.append(value.item())
        return value

    def measure(net):
        assert not torch.is_grad_enabled()
        measured.append((len(losses), float(net.weights[0].detach().sum())))
        return {"sum": float(net.weights[0].detach().sum()), "steps so far": len(losses)}

    record = train(net, loss, steps=steps, seed=0, measure=measure, measure_at=times, progress=False)
    expected = sorted(times | {steps})
    assert record["step"] == record["steps so far"] == expected and len(losses) == steps
    assert list(zip(record["step"], record["sum"])) == measured
    assert record["sum"][-1] == float(net.weights[0].detach().sum())
    for start, end, mean in zip([0, *expected], expected, record["loss"]):
        if start == end:
            assert math.isnan(mean)
        else:
            assert mean == pytest.approx(np.mean(losses[start:end]), rel=1e-12)


def test_a_column_that_is_not_there():
    with pytest.raises(KeyError, match="no column 'accuracy'; there are step, loss"):
        Record([{"step": 0, "loss": 1.0}])["accuracy"]


# ---------------------------------------------------------------------------------------------
# Interrupted and resumed

OPTIONS = {"steps": 23, "seed": 4, "measure_at": [0, 6, 12, 15], "learning_rate": 0.03, "save_every": 6, "progress": False}


@pytest.fixture(scope="module")
def whole():
    net = network()
    record = train(net, regression, measure=size, **OPTIONS)
    return weights(net), record.rows


@pytest.mark.parametrize("measure", [size, None])
@pytest.mark.parametrize("at", [0, 3, 5, 6, 7, 12, 17, 22])
def test_a_loss_that_is_interrupted(tmp_path, whole, at, measure):
    path = tmp_path / "run.pt"
    with pytest.raises(Interruption):
        train(network(), interrupted(regression, at), measure=measure, checkpoint=path, **OPTIONS)
    assert path.exists() == (at >= 6)
    seen = []

    def loss(net, step, generator):
        seen.append(step)
        return regression(net, step, generator)

    net = network(seed=99) if at >= 6 else network()  # what was in the network before does not matter
    record = train(net, loss, measure=measure, checkpoint=path, **OPTIONS)
    assert seen == list(range(at // 6 * 6, 23))
    expected = whole[1] if measure else [{k: row[k] for k in ("step", "loss")} for row in whole[1]]
    assert same(weights(net), whole[0]) and same_rows(record.rows, expected)


@pytest.mark.parametrize("at", range(5))
def test_a_measurement_that_is_interrupted(tmp_path, whole, at):
    path = tmp_path / "run.pt"
    with pytest.raises(Interruption):
        train(network(), regression, measure=interrupted(size, at), checkpoint=path, **OPTIONS)
    net = network()
    record = train(net, regression, measure=size, checkpoint=path, **OPTIONS)
    assert same(weights(net), whole[0]) and same_rows(record.rows, whole[1])


def test_interrupted_again_and_again(tmp_path, whole):
    path, tries = tmp_path / "run.pt", 0
    while True:
        net = network()
        try:
            record = train(net, interrupted(regression, 7), measure=size, checkpoint=path, **OPTIONS)
            break
        except Interruption:
            tries += 1
    assert tries == 3
    assert same(weights(net), whole[0]) and same_rows(record.rows, whole[1])


def test_interrupted_while_saving(tmp_path, whole, monkeypatch):
    path, save = tmp_path / "run.pt", torch.save

    def half(state, file):
        save(state, file)
        if state["progress"][0] == 12:
            file.write_bytes(file.read_bytes()[:500])
            raise Interruption

    monkeypatch.setattr(torch, "save", half)
    with pytest.raises(Interruption):
        train(network(), regression, measure=size, checkpoint=path, **OPTIONS)
    monkeypatch.undo()
    net = network()
    record = train(net, regression, measure=size, checkpoint=path, **OPTIONS)
    assert same(weights(net), whole[0]) and same_rows(record.rows, whole[1])
    assert list(tmp_path.iterdir()) == [path]


def test_a_finished_run_is_not_repeated(tmp_path, whole):
    path = str(tmp_path / "run.pt")
    train(network(), regression, measure=size, checkpoint=path, **OPTIONS)
    net = network(seed=99)
    record = train(net, interrupted(regression, 0), measure=interrupted(size, 0), checkpoint=path, **OPTIONS)
    assert same(weights(net), whole[0]) and same_rows(record.rows, whole[1])


def test_numbers_may_come_from_numpy_and_torch(tmp_path):
    """A checkpoint is loaded without running anything, so it must hold plain numbers."""
    path, plain = tmp_path / "run.pt", {"a": 0.1, "b": 2.0}
    options = {"steps": 6, "seed": 0, "measure_at": [2, 4], "checkpoint": path, "progress": False}
    from_numpy = {"measure_at": np.array([2, 4]), "learning_rate": np.float64(3e-3)}
    given = train(
        network(), regression, measure=lambda _: {"a": np.float64(0.1), "b": torch.tensor(2)}, **{**options, **from_numpy}
    )
    loaded = train(network(), regression, measure=lambda _: plain, **options)
    assert same_rows(given.rows, loaded.rows) and given["a"] == [0.1] * 3 and given["b"] == [2.0] * 3


def narrow(net):
    for p in net.parameters():
        p.data = p.data.float()
    return net


def partly(net):
    net.biases[1].requires_grad_(False)
    return net


@pytest.mark.parametrize(
    ("net", "change", "message"),
    [
        (network(), {"steps": 24}, "a run with steps = 23, got 24"),
        (network(), {"seed": 5}, "a run with seed = 4, got 5"),
        (network(), {"learning_rate": 0.02}, "a run with learning_rate = 0.03, got 0.02"),
        (network(), {"weight_decay": 0.0}, "a run with weight_decay = 0.01, got 0.0"),
        (network(), {"measure_at": [0, 6]}, r"a run with measure_at = \[0, 6, 12, 15\], got \[0, 6\]"),
        (network(), {"about": {"mirror_weight": 1.0}}, "a run with mirror_weight = 10.0, got 1.0"),
        (network(), {"about": None}, "a run with mirror_weight = 10.0, got None"),
        (network(), {"about": {"mirror_weight": 10.0, "task": "x"}}, "a run with task = None, got x"),
        (network(sizes=(3, 6, 2)), {}, r"a network with weights.0 of shape \(5, 3\), torch.float64, got shape \(6, 3\)"),
        (network(sizes=(3, 5, 5, 2)), {}, r"a network with weights.1 of shape \(2, 5\), torch.float64, got shape \(5, 5\)"),
        (nn.Linear(3, 2, dtype=torch.float64), {}, r"a network with weights.0 of shape \(5, 3\), torch.float64, got None"),
        (narrow(network()), {}, r"a network with weights.0 of shape \(5, 3\), torch.float64, got shape \(5, 3\), torch.float32"),
        (partly(network()), {}, r"a run with trainable = \['weights.0', .*'biases.1'\], got .*'biases.0'\]"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, net, change, message):
    path, options = tmp_path / "run.pt", OPTIONS | {"checkpoint": tmp_path / "run.pt", "about": {"mirror_weight": 10.0}}
    train(network(), regression, **options)
    before, saved = weights(net), path.read_bytes()
    with pytest.raises(ValueError, match=f"checkpoint {path} belongs to {message}"):
        train(net, regression, **options | change)
    assert same(weights(net), before) and path.read_bytes() == saved


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"garbage",
        b"PK\x03\x04garbage",
        [1, 2],
        {"network": {}},
        {"setting": 3},
        {"setting": {}, "network": 3, "progress": 1},
    ],
    ids=repr,
)
def test_a_file_that_is_no_checkpoint_is_refused(tmp_path, content):
    path = tmp_path / "run.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(ValueError, match=f"checkpoint {path} is not one of train"):
        train(network(), regression, checkpoint=path, **OPTIONS)


class Attack:
    """Pickles as a call that makes a file."""

    def __init__(self, trace):
        self.trace = trace

    def __reduce__(self):
        return open, (str(self.trace), "w")


def test_a_checkpoint_is_data_and_not_code(tmp_path):
    path, trace = tmp_path / "run.pt", tmp_path / "trace"
    torch.save({"setting": Attack(trace)}, path)
    with pytest.raises(ValueError, match=f"checkpoint {path} is not one of train"):
        train(network(), regression, checkpoint=path, **OPTIONS)
    assert not trace.exists()
    torch.load(path, weights_only=False)  # the control: the attack is a real one
    assert trace.exists()


def test_a_folder_that_is_not_there_is_noticed_before_the_first_step(tmp_path):
    with pytest.raises(FileNotFoundError, match="checkpoint must be a file in an existing folder, got .*nowhere"):
        train(network(), interrupted(regression, 0), checkpoint=tmp_path / "nowhere" / "run.pt", **OPTIONS)


def test_without_a_checkpoint_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(network(), regression, **OPTIONS)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------------------------------------
# What cannot be


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite(value):
    net = network()

    def loss(net, step, generator):
        if step == 3:
            loss.weights = weights(net)
        return regression(net, step, generator) * (value if step == 3 else 1)

    with pytest.raises(FloatingPointError, match=f"the loss is {value} at step 3; .*0.07"):
        train(net, loss, steps=5, seed=0, learning_rate=0.07, progress=False)
    assert same(weights(net), loss.weights)  # the weights are those before that step


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda net, step, generator: 1.0, TypeError, "loss must return a torch.Tensor, got float"),
        (lambda net, step, generator: net.weights[0].sum(0), ValueError, "loss must return a scalar that depends on the network"),
        (lambda net, step, generator: torch.tensor(1.0), ValueError, "scalar that depends on the network, got 1.0"),
    ],
)
def test_a_loss_that_is_none(loss, error, message):
    with pytest.raises(error, match=message):
        train(network(), loss, steps=5, seed=0, progress=False)


def frozen(net):
    return net.requires_grad_(False)


@pytest.mark.parametrize(
    ("net", "change", "message"),
    [
        (network(), {"steps": 0}, "steps and save_every must be at least 1, got 0 and 6"),
        (network(), {"save_every": 0}, "steps and save_every must be at least 1, got 23 and 0"),
        (network(), {"measure_at": [3, 24, -1]}, r"measure_at must hold whole numbers between 0 and 23 steps, got \[24, -1\]"),
        (network(), {"measure_at": [2.5]}, r"measure_at must hold whole numbers .*, got \[2.5\]"),
        (frozen(network()), {}, "network must have parameters that require a gradient, got none"),
        (nn.Tanh(), {}, "network must have parameters that require a gradient, got none"),
    ],
)
def test_arguments_that_cannot_be(net, change, message):
    with pytest.raises(ValueError, match=message):
        train(net, interrupted(regression, 0), **OPTIONS | change)


# ---------------------------------------------------------------------------------------------
# The bar


def test_no_progress_writes_nothing(capfd, tmp_path):
    train(network(), regression, checkpoint=tmp_path / "run.pt", **OPTIONS)
    assert capfd.readouterr() == ("", "")


def test_progress_shows_the_description_and_where_it_resumed(capfd, tmp_path):
    options = OPTIONS | {"progress": True, "checkpoint": tmp_path / "run.pt", "description": "a network of cats"}
    with pytest.raises(Interruption):
        train(network(), interrupted(regression, 13), **options)
    capfd.readouterr()
    train(network(), regression, **options)
    shown = capfd.readouterr()
    assert shown.out == "" and "a network of cats" in shown.err and "12/23" in shown.err and "23/23" in shown.err


def test_the_record_is_plain_data():
    record = train(network(), regression, steps=2, seed=0, measure=size, progress=False)
    assert dataclasses.asdict(record)["rows"] == record.rows
    assert {type(v) for row in record.rows for v in row.values()} == {int, float}
