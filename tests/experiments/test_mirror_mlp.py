"""The mirror experiment: what it measures on networks whose symmetry is known, and its loss."""

import json
import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from samefn.draw import Draw
from samefn.equivariance.alignment import random_symmetry
from samefn.equivariance.groups import cyclic, permutation_representation, representation, trivial
from samefn.equivariance.images import AXES
from samefn.equivariance.layerwise import hidden_values, symmetrise
from samefn.experiments import mirror_mlp
from samefn.experiments.data import Images, digits, natural_patches
from samefn.experiments.mirror_mlp import (
    LayerFit,
    Setting,
    bundled,
    errors,
    fit_layers,
    mirror_loss,
    mirror_symmetry,
    outcome,
    run,
    units,
    untrained,
)
from samefn.experiments.training import OneCycle, train
from samefn.networks import DeepMLP

SHAPES = [(1, 4, 4), (3, 2, 4), (2, 4, 2)]  # grey, colour, and not square
C2 = cyclic(2)
(SWAP,) = C2.generators


def near(measured):
    """The last bits of a least-squares fit depend on where in memory the numbers are."""
    return pytest.approx(measured, rel=1e-9, abs=1e-12)


def flipped(x, shape, axis="left-right"):
    """Mirror images by NumPy indices, the oracle of ``mirrored``."""
    images = np.asarray(x.detach()).reshape(-1, *shape)
    return torch.from_numpy(
        (images[..., ::-1] if axis == "left-right" else images[..., ::-1, :]).copy()
    ).reshape(x.shape)


def on_pixels(shape, axis="left-right"):
    """The mirror as a representation of C_2 on flattened images."""
    return representation(
        C2, {SWAP: flipped(torch.eye(math.prod(shape), dtype=torch.float64), shape, axis).T.contiguous()}
    )


def pictures(n, shape, seed=0, classes=None):
    """Random pictures that no mirror leaves alone."""
    labels = None if classes is None else torch.arange(n) % classes
    return Images("random pictures", Draw(seed).uniform(n, *shape), labels)


def planted(shape, task, axis="left-right", seed=0, hide=True):
    """A network of the experiment's kind whose layers are equivariant, and the actions on its hidden layers.

    The tanh layer has one mirror-symmetric unit, two pairs and an antisymmetric unit, the GELU layers
    symmetric units and pairs.  With ``hide``, the units' order and signs are random.
    """
    sign = representation(C2, {SWAP: -torch.eye(1, dtype=torch.float64)})
    pair, one = permutation_representation(C2), trivial(C2)
    pixels = on_pixels(shape, axis)
    reps = [pixels, one + 2 * pair + sign, 2 * pair + one, pair + 2 * one]
    reps += [pixels if task == "autoencoder" else trivial(C2, 3)]
    sizes = [r.dimension for r in reps]
    weights = [2 * Draw(seed + i).normal(m, n) / n**0.5 for i, (n, m) in enumerate(pairwise(sizes))]
    biases = [Draw(seed + 10 + i).normal(m) for i, m in enumerate(sizes[1:])]
    network = symmetrise(DeepMLP(weights, biases, ["tanh", "gelu", "gelu"]), reps)
    actions = [r(SWAP) for r in reps[1:-1]]
    if hide:
        hiding = random_symmetry(network, generator=Draw(seed + 20))
        network = hiding.apply(network)
        actions = [k @ a @ k.T for k, a in zip(hiding.matrices(), actions)]
    return network, actions


# ---------------------------------------------------------------------------------------------
# Settings and the network before training


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"task": "segmentation"}, "task must be one of 'autoencoder', 'classifier', got 'segmentation'"),
        ({"width": 0}, "width must be an integer of at least 1, got 0"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"batch": 0}, "batch must be an integer of at least 1, got 0"),
        ({"noise": 0}, "noise must be an integer of at least 1, got 0"),
        ({"mirror_from": 1.1}, r"mirror_from must be a number from 0 to 1, got 1.1"),
        ({"mirror_from": -0.1}, r"mirror_from must be a number from 0 to 1, got -0.1"),
        ({"mirror_from": math.nan}, r"mirror_from must be a number from 0 to 1, got nan"),
    ],
)
def test_settings_that_cannot_be(wrong, message):
    with pytest.raises(ValueError, match=message):
        Setting(**wrong)


@pytest.mark.parametrize(("task", "outputs"), [("autoencoder", 24), ("classifier", 5)])
def test_the_network_before_training(task, outputs):
    images = pictures(20, (3, 2, 4), classes=5)
    setting = Setting(task=task, activation="relu", seed=3, width=200)
    network = untrained(images, setting)
    assert (network.dim_in, network.widths, network.dim_out) == (24, (200, 200, 200), outputs)
    assert [f.name for f in network.activations] == ["relu", "gelu", "gelu"]
    assert all(p.dtype == torch.float64 and p.requires_grad for p in network.parameters())
    for weight, bias in zip(*([p.detach() for p in part] for part in (network.weights, network.biases))):
        bound = weight.shape[1] ** -0.5
        assert max(weight.abs().max(), bias.abs().max()) <= bound and bias.abs().max() > bound / 2
        # uniform: a variance of bound²/3, and values close to both ends
        assert (
            float(weight.square().mean()) == pytest.approx(bound**2 / 3, rel=0.1)
            and abs(weight.mean()) < 0.1 * bound
        )
        assert weight.max() > 0.97 * bound and weight.min() < -0.97 * bound
    again, other = (
        untrained(images, setting),
        untrained(images, Setting(task=task, activation="tanh", seed=4, width=200)),
    )
    assert all(map(torch.equal, network.parameters(), again.parameters()))
    assert not any(map(torch.equal, network.parameters(), other.parameters()))


def test_a_classifier_needs_labels():
    with pytest.raises(
        ValueError, match="images must have labels for a classifier, random pictures have none"
    ):
        untrained(pictures(5, (1, 4, 4)), Setting(task="classifier"))


def test_the_bundled_images():
    expected = natural_patches(20_000, 12, scales=(1, 2, 4), generator=Draw(0))
    assert torch.equal(bundled("autoencoder").pixels, expected.pixels) and expected.shape == (1, 12, 12)
    images = bundled("classifier")
    assert torch.equal(images.pixels, digits().pixels) and torch.equal(images.labels, digits().labels)


def test_no_images_for_a_task_that_is_none():
    with pytest.raises(ValueError, match="task must be one of 'autoencoder', 'classifier', got 'classifer'"):
        bundled("classifer")


# ---------------------------------------------------------------------------------------------
# The loss


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", ["autoencoder", "classifier"])
@pytest.mark.parametrize(
    ("step", "weight", "scale"),
    [(0, 10.0, 1.0), (2, 10.0, 2.0), (3, 10.0, 1.0), (3, 0.5, 2.0), (9, 2.0, 0.5), (3, 0.0, 1.0)],
)
def test_the_loss_is_the_task_and_from_its_start_the_mean_violation(shape, task, step, weight, scale):
    images = pictures(30, shape, classes=4)
    numbers = {"steps": 10, "batch": 6, "noise": 7, "noise_scale": scale, "mirror_weight": weight}
    setting = Setting(task=task, width=5, mirror_from=0.3, **numbers)
    network = untrained(images, setting)
    found = mirror_loss(images, setting)(network, step, Draw(8))

    g = Draw(8)  # the same draws
    x = (images.pixels - images.pixels.mean()) / images.pixels.std()
    chosen = torch.randint(30, (6,), generator=g)
    batch = x[chosen].reshape(6, -1)
    with torch.no_grad():
        y = network(batch).numpy()
        if task == "autoencoder":
            expected = ((y - batch.numpy()) ** 2).mean()
        else:
            chances = np.exp(y) / np.exp(y).sum(1, keepdims=True)
            expected = -np.log([p[k] for p, k in zip(chances, images.labels[chosen])]).mean()
        if step >= 3:
            noise = torch.randn(7, batch.shape[1], generator=g, dtype=torch.float32).double()
            z = torch.cat([batch, scale * noise])
            after, before = network(flipped(z, shape)), network(z)
            before = flipped(before, shape) if task == "autoencoder" else before
            expected += weight * ((after - before).numpy() ** 2).mean()
    assert found.dim() == 0 and found.item() == pytest.approx(expected, rel=1e-12)
    found.backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in network.parameters())


@pytest.mark.parametrize(("fraction", "first"), [(0.0, 0), (0.25, 5), (0.26, 6), (0.5, 10), (1.0, None)])
def test_when_the_mirror_starts(fraction, first):
    images = pictures(10, (1, 4, 4))
    setting = Setting(width=3, steps=20, batch=4, noise=4, mirror_from=fraction)
    with_mirror = mirror_loss(images, setting)
    without = mirror_loss(images, Setting(width=3, steps=20, batch=4, noise=4, mirror_from=1.0))
    network = untrained(images, setting)
    with torch.no_grad():
        more = [float(with_mirror(network, s, Draw(s)) - without(network, s, Draw(s))) for s in range(20)]
    start = 20 if first is None else first
    assert all(m == 0 for m in more[:start]) and all(m > 1e-3 for m in more[start:])


@pytest.mark.parametrize("task", ["autoencoder", "classifier"])
def test_an_equivariant_network_pays_nothing_for_the_mirror(task):
    network, _ = planted((3, 2, 4), task)
    images = pictures(30, (3, 2, 4), classes=3)
    draws = [Draw(1), Draw(1)]
    with_mirror, without = (
        float(mirror_loss(images, Setting(task=task, mirror_from=start))(network, 5999 - 1, g))
        for start, g in zip((0.0, 1.0), draws)
    )
    assert with_mirror == pytest.approx(without, rel=1e-12)


# ---------------------------------------------------------------------------------------------
# Layer by layer


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("task", ["autoencoder", "classifier"])
@pytest.mark.parametrize("shape", SHAPES)
def test_equivariant_layers_have_no_error_and_their_actions_are_found(shape, task, axis, hide):
    network, actions = planted(shape, task, axis, hide=hide)
    found = fit_layers(network, shape, axis, samples=500)
    assert max(*found.errors, found.end_to_end) < 1e-8 and len(found.errors) == len(found.actions) == 3
    for a, b in zip(found.actions, actions):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-8)
    for a, b in zip(mirror_symmetry(network, shape, axis).matrices(), actions):
        assert torch.equal(a, torch.linalg.inv(b))
    # the control: the other mirror is no symmetry, in any layer
    (other,) = {*AXES} - {axis}
    found = fit_layers(network, shape, other, samples=500)
    assert min(*found.errors, found.end_to_end) > 0.05
    assert (
        mirror_symmetry(network, shape, other).error > 0.1
        and mirror_symmetry(network, shape, axis).error < 1e-12
    )


def relative_medians(network, shape, axis, samples, scale, seed):
    """Errors and actions of ``fit_layers`` by NumPy, layer by layer, from the same draws."""
    g = Draw(seed)
    sizes = mirror_mlp.FIT_SAMPLES, samples
    fit, test = (
        scale * torch.randn(n, network.dim_in, generator=g, dtype=torch.float32).double() for n in sizes
    )
    result, actions = [], []
    for depth in (1, 2, 3):

        def f(x):
            with torch.no_grad():
                for i in range(depth):  # noqa: B023
                    x = network.activations[i](x @ network.weights[i].T + network.biases[i])
            return x.numpy()

        h, moved = f(fit), f(flipped(fit, shape, axis))
        a = np.linalg.solve(h.T @ h, h.T @ moved).T  # the normal equations
        actions.append(a)
        h, moved = f(test), f(flipped(test, shape, axis))
        result.append(np.linalg.norm(moved - h @ a.T, axis=1) / np.linalg.norm(h, axis=1))
    with torch.no_grad():
        y, moved = network(test), network(flipped(test, shape, axis)).numpy()
    expected = (flipped(y, shape, axis) if y.shape[1] == test.shape[1] else y).numpy()
    result.append(np.linalg.norm(moved - expected, axis=1) / np.linalg.norm(y.numpy(), axis=1))
    # torch's median is the lower one of the two in the middle
    return actions, [float(np.sort(r)[(samples - 1) // 2]) for r in result]


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("task", ["autoencoder", "classifier"])
@pytest.mark.parametrize(("activation", "scale"), [("tanh", 1.0), ("tanh", 3.0), ("relu", 1.0)])
def test_errors_of_an_untrained_network_are_large_and_right(activation, scale, task, axis):
    shape = (3, 2, 4)
    network = untrained(
        pictures(9, shape, classes=3), Setting(task=task, activation=activation, width=16, seed=2)
    )
    found = fit_layers(network, shape, axis, samples=1001, noise_scale=scale, seed=5)
    actions, expected = relative_medians(network, shape, axis, 1001, scale, 5)
    for a, b in zip(found.actions, actions):
        np.testing.assert_allclose(a.numpy(), b, atol=1e-7)
    assert [*found.errors, found.end_to_end] == pytest.approx(expected, rel=1e-7)
    assert min(found.errors) > 0.02 and found.errors[0] > 0.3 and found.end_to_end > 0.05


def test_the_error_is_of_other_samples_than_the_fit(monkeypatch):
    """With as many units as samples to fit, the fit has no error: what is reported is the error on others."""
    network = untrained(pictures(9, (1, 4, 4)), Setting(width=40))
    monkeypatch.setattr(mirror_mlp, "FIT_SAMPLES", 40)
    assert fit_layers(network, (1, 4, 4), samples=40).errors[0] > 0.3


def test_hidden_values_are_the_layers():
    network, _ = planted((1, 4, 4), "autoencoder")
    x = Draw().normal(5, 16)
    values = hidden_values(network, x)
    assert [v.shape[1] for v in values] == [6, 5, 4, 16] and not any(v.requires_grad for v in values)
    for i, v in enumerate(values, start=1):
        x = network.layer(i, x)
        assert torch.equal(v, x)


def test_errors_name_every_layer_and_axis():
    network, _ = planted((3, 2, 4), "autoencoder")
    found = errors(network, (3, 2, 4), samples=300, noise_scale=2.0)
    expected = {}
    for axis in ("left-right", "up-down"):
        result = fit_layers(network, (3, 2, 4), axis, samples=300, noise_scale=2.0)
        assert isinstance(result, LayerFit)
        expected |= {f"f{i} {axis}": error for i, error in zip((1, 2, 3), result.errors)} | {
            f"end {axis}": result.end_to_end
        }
    assert found == near(expected) and len(found) == 8


def test_the_measurement_is_seeded_and_leaves_other_chance_alone():
    network = untrained(pictures(9, (1, 4, 4)), Setting(width=8))
    before = torch.get_rng_state()
    one, two, other = (fit_layers(network, (1, 4, 4), samples=100, seed=s) for s in (1, 1, 2))
    assert one.errors == near(two.errors) and one.errors != pytest.approx(other.errors, rel=1e-3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("measure", [fit_layers, errors, mirror_symmetry, units])
def test_a_shape_that_does_not_fit_is_refused(measure):
    network, _ = planted((1, 4, 4), "autoencoder")
    with pytest.raises(ValueError, match=r"length 15 for images of shape \(1, 3, 5\), got 16"):
        measure(network, (1, 3, 5))


# ---------------------------------------------------------------------------------------------
# Unit by unit


@pytest.mark.parametrize("axis", AXES)
@pytest.mark.parametrize("task", ["autoencoder", "classifier"])
@pytest.mark.parametrize("shape", SHAPES)
def test_units_finds_partners_and_signs(shape, task, axis):
    network, actions = planted(shape, task, axis, seed=1)
    found = units(network, shape, axis)
    assert torch.equal(found.partner, actions[0].abs().argmax(dim=1))
    assert torch.equal(found.sign, actions[0].sum(dim=1)) and -1 in found.sign and 1 in found.sign
    assert max(found.misfit) < 1e-12
    alone = [j for j, p in enumerate(found.partner) if p == j]
    assert len(alone) == 2 and sorted(found.sign[j] for j in alone) == [
        -1,
        1,
    ]  # the symmetric and the antisymmetric one


def test_misfit_outgoing_and_opposite_of_any_network():
    shape = (3, 2, 4)
    network = untrained(pictures(9, shape), Setting(width=7, seed=1))
    with torch.no_grad():
        network.weights[0][3], network.biases[0][3] = -2 * network.weights[0][5], -2 * network.biases[0][5]
    found = units(network, shape)
    rows = [
        np.append(w, b)
        for w, b in zip(network.weights[0].detach().numpy(), network.biases[0].detach().numpy())
    ]
    images = [np.append(flipped(torch.from_numpy(r[:-1]), shape).numpy(), r[-1]) for r in rows]
    assert sorted(found.partner.tolist()) == list(range(7)) and {*found.sign.tolist()} <= {-1.0, 1.0}
    for j in range(7):
        gap = images[j] - float(found.sign[j]) * rows[found.partner[j]]
        assert float(found.misfit[j]) == pytest.approx(
            np.linalg.norm(gap) / np.linalg.norm(rows[j]), rel=1e-12
        )
        cosines = [r @ rows[j] / np.linalg.norm(r) / np.linalg.norm(rows[j]) for r in rows]
        assert float(found.opposite[j]) == pytest.approx(min(cosines), abs=1e-12)
        column = network.weights[1].detach()[:, j].tolist()
        assert float(found.outgoing[j]) == pytest.approx(math.hypot(*column), rel=1e-12)
    assert found.opposite[[3, 5]].tolist() == pytest.approx([-1, -1])
    assert min(found.misfit) > 0.3  # untrained


def test_the_outcome_is_what_the_parts_measure_and_fits_into_a_file():
    shape = (1, 4, 4)
    network, _ = planted(shape, "autoencoder")
    _, record = run(pictures(9, shape), Setting(width=3, steps=2, batch=2, noise=2), progress=False)
    found, fates = outcome(network, record, shape, noise_scale=2.0), vars(units(network, shape))
    assert found["errors"] == near(errors(network, shape, noise_scale=2.0))
    assert found["units"] == {name: column.tolist() for name, column in fates.items()}
    assert found["distance"] < 1e-8 and found["rows"] == record.rows
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    # the control: one weight of the first layer, out of place, moves its action from every signed permutation
    weights, biases = ([p.detach().clone() for p in part] for part in (network.weights, network.biases))
    weights[0][0, 0] += 1
    found = outcome(DeepMLP(weights, biases, network.activations), record, shape)
    action = fit_layers(DeepMLP(weights, biases, network.activations), shape, samples=1).actions[0].numpy()
    nearest = np.round(action)  # still near enough for rounding to give it
    assert sorted(np.abs(nearest).sum(0)) == sorted(np.abs(nearest).sum(1)) == [1] * 6
    assert (
        found["distance"] == pytest.approx(np.linalg.norm(action - nearest) / 6**0.5, rel=1e-9)
        and found["distance"] > 0.02
    )


# ---------------------------------------------------------------------------------------------
# A whole run


@pytest.mark.parametrize("task", ["autoencoder", "classifier"])
def test_a_run_on_images_like_those_of_cifar10(task, monkeypatch):
    monkeypatch.setattr(mirror_mlp, "FIT_SAMPLES", 300)
    images = pictures(40, (3, 32, 32), classes=10)
    setting = Setting(
        task=task, activation="gelu", seed=1, width=6, steps=4, batch=8, noise=8, noise_scale=2.0
    )
    network, record = run(images, setting, progress=False)
    assert record["step"] == [4] and all(math.isfinite(v) for row in record.rows for v in row.values())
    last = {name: value for name, value in record.rows[-1].items() if name not in ("step", "loss")}
    assert last == near(errors(network, images.shape, samples=4000, noise_scale=2.0))
    # the same by hand
    other = untrained(images, setting)
    plan = OneCycle(4, learning_rate=3e-3, weight_decay=0.01)
    train(other, mirror_loss(images, setting), plan, seed=1, bar=None)
    assert all(map(torch.equal, network.parameters(), other.parameters()))


@pytest.mark.parametrize("name", ["learning_rate", "weight_decay"])
def test_the_setting_reaches_the_optimizer(name):
    images = pictures(9, (1, 4, 4))
    networks = [
        run(images, Setting(width=3, steps=3, batch=2, noise=2, **{name: v}), progress=False)[0]
        for v in (0.01, 0.02)
    ]
    assert not torch.equal(networks[0].weights[0], networks[1].weights[0])


def test_training_makes_the_mirror_error_smaller():
    images = pictures(200, (1, 4, 4))
    setting = Setting(width=12, steps=400, batch=32, noise=64, mirror_from=0.0)
    _, record = run(images, setting, measure_at=(0,), progress=False)
    for name in ("f1 left-right", "f2 left-right", "end left-right"):
        assert record[name][-1] < 0.5 * record[name][0]
    assert record["f1 up-down"][-1] > 0.2  # was not asked for


def test_a_run_can_be_watched():
    images, seen = pictures(9, (1, 4, 4)), []
    setting = Setting(width=3, steps=4, batch=2, noise=2)
    network, record = run(
        images,
        setting,
        measure_at=(0, 2),
        watch=lambda n: seen.append(n.weights[0].detach().clone()),
        progress=False,
    )
    assert record["step"] == [0, 2, 4] and len(seen) == 3
    assert torch.equal(seen[0], untrained(images, setting).weights[0]) and torch.equal(
        seen[2], network.weights[0]
    )
