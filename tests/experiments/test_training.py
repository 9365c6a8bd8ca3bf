"""The training loop: the same weights every time, the right optimizer, and what was measured when."""

import dataclasses
import math
import random
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from samefn.draw import Draw
from samefn.experiments.training import OneCycle, Record, train
from samefn.networks import DeepMLP


def network(seed=0, sizes=(3, 5, 2)):
    draw, pairs = Draw(seed), list(pairwise(sizes))
    weights = [draw.normal(m, n).requires_grad_() for n, m in pairs]
    return DeepMLP(weights, [draw.normal(m).requires_grad_() for _, m in pairs], "tanh")


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


def never(net, step, generator):
    raise AssertionError("the loss was called")


# ---------------------------------------------------------------------------------------------
# Reproducible


def test_the_seed_decides_everything_and_nothing_else_does():
    runs = {}
    for name, seed in (("one", 5), ("again", 5), ("other", 6)):
        net = network()
        torch.manual_seed(len(runs))  # must not matter
        record = train(net, regression, OneCycle(30), seed=seed, measure=size, measure_at=[10, 20], bar=None)
        runs[name] = weights(net), record.rows
    assert same(runs["one"][0], runs["again"][0]) and same_rows(runs["one"][1], runs["again"][1])
    assert not same(runs["one"][0], runs["other"][0])


def test_the_global_generators_stay_untouched():
    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy(), random.getstate()
    train(network(), regression, OneCycle(5), seed=0, measure=size, bar=None)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1]) and random.getstate() == before[2]


def by_hand(net, loss, plan, seed):
    """AdamW (Loshchilov and Hutter, Algorithm 2) and the one-cycle schedule from their formulas.

    The schedule moves the momentum too.
    """
    generator = torch.Generator().manual_seed(seed)
    parameters = [p.detach().clone() for p in net.parameters()]
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    steps, peak, losses = plan.steps, 0.3 * plan.steps - 1, []

    def between(start, end, fraction):
        return end + (start - end) * (1 + math.cos(math.pi * fraction)) / 2

    for step in range(steps):
        if step <= peak:
            ends = (plan.learning_rate / 25, plan.learning_rate), (0.95, 0.85)
            rate, beta = (between(*pair, step / peak) for pair in ends)
        else:
            done = (step - peak) / (steps - 1 - peak)
            ends = (plan.learning_rate, plan.learning_rate / 25e4), (0.85, 0.95)
            rate, beta = (between(*pair, done) for pair in ends)
        with torch.no_grad():
            for p, q in zip(net.parameters(), parameters):
                p.copy_(q)
        value = loss(net, step, generator)
        losses.append(value.item())
        for k, g in enumerate(torch.autograd.grad(value, list(net.parameters()))):
            first[k] = beta * first[k] + (1 - beta) * g
            second[k] = 0.999 * second[k] + 0.001 * g**2
            m, v = first[k] / (1 - beta ** (step + 1)), second[k] / (1 - 0.999 ** (step + 1))
            parameters[k] = (1 - rate * plan.weight_decay) * parameters[k] - rate * m / (v.sqrt() + 1e-8)
    return parameters, losses


@given(
    st.integers(7, 60),
    st.integers(0, 100),
    st.sampled_from([1e-3, 0.05]),
    st.sampled_from([0.0, 0.01, 0.5]),
)
def test_it_is_adamw_with_one_cycle(steps, seed, learning_rate, weight_decay):
    plan, net = OneCycle(steps, learning_rate, weight_decay), network(seed)
    record = train(net, regression, plan, seed=seed, bar=None)
    expected, losses = by_hand(network(seed), regression, plan, seed)
    for p, q in zip(net.parameters(), expected):
        torch.testing.assert_close(p.detach(), q, rtol=1e-8, atol=1e-10)
    assert record["loss"] == [pytest.approx(sum(losses) / steps, rel=1e-10)]


def test_the_defaults_are_those_of_the_docstring():
    net = network()
    train(net, regression, OneCycle(40), seed=1, bar=None)
    expected, _ = by_hand(network(), regression, OneCycle(40, learning_rate=3e-3, weight_decay=0.01), 1)
    torch.testing.assert_close(weights(net), expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_the_shortest_runs(steps):
    net = network()
    record = train(net, regression, OneCycle(steps), seed=0, measure_at=range(steps + 1), bar=None)
    assert record["step"] == list(range(steps + 1)) and not same(weights(net), weights(network()))


def test_only_what_requires_a_gradient_is_trained():
    net = network()
    net.weights[0].requires_grad_(False)
    before = weights(net)
    train(net, regression, OneCycle(3), seed=0, bar=None)
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

    record = train(net, loss, OneCycle(steps), seed=0, measure=measure, measure_at=times, bar=None)
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


def test_numbers_may_come_from_numpy_and_torch():
    plan = OneCycle(6, learning_rate=np.float64(3e-3))
    options = {"seed": 0, "bar": None}
    given = train(
        network(),
        regression,
        plan,
        measure=lambda _: {"a": np.float64(0.1), "b": torch.tensor(2)},
        measure_at=np.array([2, 4]),
        **options,
    )
    plain = train(
        network(),
        regression,
        OneCycle(6),
        measure=lambda _: {"a": 0.1, "b": 2.0},
        measure_at=[2, 4],
        **options,
    )
    assert same_rows(given.rows, plain.rows) and given["a"] == [0.1] * 3 and given["b"] == [2.0] * 3
    assert {type(v) for row in given.rows for v in row.values()} == {int, float}


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(network(), regression, OneCycle(3), seed=4, bar=None)
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
        train(net, loss, OneCycle(5, learning_rate=0.07), seed=0, bar=None)
    assert same(weights(net), loss.weights)  # the weights are those before that step


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        (lambda *_: 1.0, TypeError, "loss must return a torch.Tensor, got float"),
        (
            lambda net, *_: net.weights[0].sum(0),
            ValueError,
            "loss must return a scalar that depends on the network",
        ),
        (lambda *_: torch.tensor(1.0), ValueError, "scalar that depends on the network, got 1.0"),
    ],
)
def test_a_loss_that_is_none(loss, error, message):
    with pytest.raises(error, match=message):
        train(network(), loss, OneCycle(5), seed=0, bar=None)


def frozen(net):
    return net.requires_grad_(False)


@pytest.mark.parametrize(
    ("net", "measure_at", "message"),
    [
        (
            network(),
            [3, 24, -1],
            r"measure_at must hold whole numbers between 0 and 23 steps, got \[24, -1\]",
        ),
        (network(), np.array([3, 24]), "measure_at must hold whole numbers between 0 and 23 steps, got"),
        (frozen(network()), [], "network must have parameters that require a gradient, got none"),
        (nn.Tanh(), [], "network must have parameters that require a gradient, got none"),
    ],
)
def test_arguments_that_cannot_be(net, measure_at, message):
    with pytest.raises(ValueError, match=message):
        train(net, never, OneCycle(23), seed=4, measure_at=measure_at, bar=None)


@pytest.mark.parametrize("steps", [0, -1])
def test_a_plan_without_steps(steps):
    with pytest.raises(ValueError, match=f"steps must be an integer of at least 1, got {steps}"):
        OneCycle(steps)


# ---------------------------------------------------------------------------------------------
# The bar


def test_without_a_bar_nothing_is_shown(capfd):
    train(network(), regression, OneCycle(23), seed=4, bar=None)
    assert capfd.readouterr() == ("", "")


def test_the_bar_shows_what_it_is_told_and_every_step(capfd):
    train(network(), regression, OneCycle(23), seed=4, bar="a network of cats")
    shown = capfd.readouterr()
    assert shown.out == "" and "a network of cats" in shown.err and "23/23" in shown.err


def test_the_record_is_plain_data():
    record = train(network(), regression, OneCycle(2), seed=0, measure=size, bar=None)
    assert dataclasses.asdict(record)["rows"] == record.rows
    assert {type(v) for row in record.rows for v in row.values()} == {int, float}
