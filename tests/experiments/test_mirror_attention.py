"""The experiment on attention heads: its setting, its loss, and a short run."""

import pytest
import torch

from samefn.draw import Draw
from samefn.equivariance.images import mirrored_tokens
from samefn.experiments.mirror_attention import (
    Setting,
    errors,
    mirror_loss,
    outcome,
    photographs,
    run,
    untrained,
)


def test_the_loss_is_the_task_and_then_also_the_mirror():
    x, setting = (
        photographs(3, 50),
        Setting(columns=3, heads=2, steps=10, batch=5, noise=4, mirror_from=0.5, noise_scale=2.0),
    )
    layer, loss = untrained(setting), mirror_loss(photographs(3, 50), setting)
    chosen = x[torch.randint(50, (5,), generator=Draw())]
    task = (layer(chosen) - chosen).square().mean()
    torch.testing.assert_close(loss(layer, 4, Draw()), task, rtol=1e-12, atol=0)
    draw = Draw()
    torch.randint(50, (5,), generator=draw)
    batch = torch.cat([chosen, 2 * draw.normal(4, 9, 16)])
    violation = (layer(mirrored_tokens(batch)) - mirrored_tokens(layer(batch))).square().mean()
    torch.testing.assert_close(loss(layer, 5, Draw()), task + 10 * violation, rtol=1e-10, atol=0)


def test_photographs_have_no_mean_and_unit_variance():
    x = photographs(4, 300)
    assert x.shape == (300, 16, 9)
    assert x.mean((1, 2)).abs().max() < 1e-12 and abs(float(x.std()) - 1) < 1e-12
    assert not torch.equal(x, photographs(4, 300, seed=1))


def test_a_short_run_is_repeatable_and_measured():
    x, setting = photographs(3, 100), Setting(columns=3, heads=2, steps=12, batch=4, noise=4)
    (layer, record), (again, _) = (run(x, setting, measure_at=(0, 6), progress=False) for _ in range(2))
    assert record["step"] == [0, 6, 12] and set(errors(layer)) < set(record.rows[0])
    assert all(torch.equal(a, b) for a, b in zip(layer.parameters(), again.parameters()))
    found = outcome(layer, record, x)
    assert len(found["fate"]) == len(found["misfit"]) == 2 and found["rows"] == record.rows
    for wrong in ({"heads": 0}, {"columns": 5}, {"mirror_from": 2.0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Setting(**wrong)
