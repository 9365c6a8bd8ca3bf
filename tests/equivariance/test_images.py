"""Images, their patches and their mirror images, against indices written out."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.equivariance.images import (
    AXES,
    from_patches,
    mirror_on_tokens,
    mirrored,
    mirrored_tokens,
    to_patches,
)


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 5), st.integers(1, 5), st.sampled_from(sorted(AXES))
)
def test_mirrored_flips_and_flips_back(n, channels, height, width, axis):
    shape = channels, height, width
    x = Draw(n).normal(n, math.prod(shape))
    y = mirrored(x, shape, axis)
    assert torch.equal(
        y.reshape(n, *shape), torch.flip(x.reshape(n, *shape), [3 if axis == "left-right" else 2])
    )
    images = x.numpy().reshape(n, *shape)
    by_index = images[..., ::-1] if axis == "left-right" else images[..., ::-1, :]
    assert np.array_equal(y, by_index.reshape(x.shape)) and torch.equal(mirrored(y, shape, axis), x)
    assert torch.equal(mirrored(x[0], shape, axis), y[0])


def test_left_and_right_are_the_columns():
    x = torch.arange(6.0)  # 0 1 2 / 3 4 5
    assert mirrored(x, (1, 2, 3)).tolist() == [2, 1, 0, 5, 4, 3]
    assert mirrored(x, (1, 2, 3), "up-down").tolist() == [3, 4, 5, 0, 1, 2]
    assert mirrored(x, (3, 1, 2)).tolist() == [1, 0, 3, 2, 5, 4]  # the channels stay


@pytest.mark.parametrize(
    ("shape", "axis", "message"),
    [
        ((1, 3, 4), "diagonal", "axis must be one of 'left-right', 'up-down', got 'diagonal'"),
        ((1, 3, 4), -1, "axis must be one of 'left-right', 'up-down', got -1"),
        ((3, 3, 4), "left-right", r"x must have rows of length 36 for images of shape \(3, 3, 4\), got 12"),
        ((1, 3, 5), "up-down", "x must have rows of length 15"),
        (
            (3, 4),
            "left-right",
            "shape",
        ),  # what is not (channels, height, width) must not be flipped in some other way
        ((1, 1, 3, 4), "left-right", "shape"),
    ],
)
def test_mirrored_refuses(shape, axis, message):
    with pytest.raises((TypeError, ValueError), match=message):
        mirrored(Draw().normal(2, 12), shape, axis)


@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))
def test_patches_and_back(rows, columns, size, batch):
    images = Draw().normal(*[2] * batch, rows * size, columns * size)
    tokens = to_patches(images, size)
    assert torch.equal(from_patches(tokens, columns), images)
    for r, c in itertools.product(range(rows), range(columns)):
        patch = images[..., r * size : (r + 1) * size, c * size : (c + 1) * size]
        assert torch.equal(tokens[..., r * columns + c, :], patch.flatten(-2))


def test_patches_must_fit():
    with pytest.raises(
        ValueError, match="size must divide the height and width of the images, 6 and 8, got 4"
    ):
        to_patches(torch.zeros(6, 8), 4)
    with pytest.raises(ValueError, match="columns must divide the number of tokens, 6, got 4"):
        from_patches(torch.zeros(6, 4), 4)
    with pytest.raises(ValueError, match="tokens must be squares, got 3 pixels in each"):
        from_patches(torch.zeros(6, 3), 3)


def test_the_mirror_on_tokens_is_the_mirror_of_the_image():
    x = Draw().normal(7, 16, 9)
    for axis in ("left-right", "up-down"):
        images = from_patches(x, 4).flatten(1)
        wanted = to_patches(mirrored(images, (1, 12, 12), axis).unflatten(1, (12, 12)), 3)
        assert torch.equal(mirrored_tokens(x, axis), wanted)
        tau, sigma = mirror_on_tokens(16, 9, axis)
        assert torch.equal(tau[tau], torch.arange(16)) and torch.equal(sigma[sigma], torch.arange(9))
    with pytest.raises(ValueError, match="axis must be one of 'left-right', 'up-down', got 'diagonal'"):
        mirrored_tokens(x, "diagonal")
    with pytest.raises(ValueError, match="tokens and n must be squares, got 6 and 4"):
        mirror_on_tokens(6, 4)
