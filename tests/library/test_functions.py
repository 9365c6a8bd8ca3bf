"""gap against plain loops over entries."""

import math

import pytest
import torch

from samefn.functions import gap


def test_the_largest_difference_over_the_largest_value():
    x = torch.tensor([[1.0, -4.0], [2.0, 3.0]])
    assert gap(lambda x: x, lambda x: x + torch.tensor([0.0, 0.5]), x) == 0.5 / 4
    assert gap(lambda x: 2 * x, lambda x: 2 * x, x) == 0
    values = [
        (abs(a - b), abs(a)) for a, b in zip(x.flatten().tolist(), (x**2).flatten().tolist(), strict=True)
    ]
    assert gap(lambda x: x, torch.square, x) == max(d for d, _ in values) / max(a for _, a in values)


def test_it_does_not_depend_on_the_scale_and_is_not_symmetric():
    x = torch.linspace(1, 2, 5)[:, None]
    f, g = (lambda x: x), (lambda x: 3 * x)
    assert (
        gap(lambda x: 1e9 * f(x), lambda x: 1e9 * g(x), x) == pytest.approx(gap(f, g, x)) == pytest.approx(2)
    )
    assert gap(g, f, x) == pytest.approx(2 / 3)


def test_zero_functions_and_nan():
    x = torch.ones(3, 1)
    assert gap(lambda x: 0 * x, lambda x: 0 * x, x) == 0
    assert gap(lambda x: 0 * x, lambda x: x, x) == math.inf
    assert math.isnan(gap(lambda x: x, lambda x: x * math.nan, x))


def test_no_gradients_and_no_broadcasting():
    layer = torch.nn.Linear(2, 2)
    assert isinstance(gap(layer, layer, torch.ones(3, 2)), float)
    with pytest.raises(ValueError, match=r"f\(x\) and g\(x\) must have one shape, got \(3, 2\) and \(3, 1\)"):
        gap(lambda x: x, lambda x: x[:, :1], torch.ones(3, 2))
