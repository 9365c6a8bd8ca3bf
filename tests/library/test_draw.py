"""Draw gives torch's own numbers for its seed, and draws that are what they say."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samefn.draw import Draw
from samefn.networks import random_mlp


def torch_generator(seed):
    return torch.Generator().manual_seed(seed)


def test_it_is_the_generator_of_its_seed():
    assert torch.equal(
        Draw(7).normal(3, 2), torch.randn(3, 2, generator=torch_generator(7), dtype=torch.float64)
    )
    assert torch.equal(Draw(7).uniform(4), torch.rand(4, generator=torch_generator(7), dtype=torch.float64))
    assert torch.equal(Draw(7).permutation(9), torch.randperm(9, generator=torch_generator(7)))
    blocks = random_mlp(2, 3, generator=Draw(7)), random_mlp(2, 3, generator=torch_generator(7))
    assert torch.equal(blocks[0].up, blocks[1].up)


def test_draws_are_float64_whatever_the_default():
    torch.set_default_dtype(torch.float32)
    draw = Draw(0)
    assert {draw.normal(2).dtype, draw.uniform(2).dtype, draw.signs(2).dtype} == {torch.float64}


def test_names_give_one_generator_each():
    first = Draw.of("A-T8", "odd_part", 0).normal(5)
    assert torch.equal(first, Draw.of("A-T8", "odd_part", 0).normal(5))
    for other in (("A-T8", "odd_part", 1), ("A-T8", "odd_par", "t0"), ("A-T", "8odd_part", 0)):
        assert not torch.equal(first, Draw.of(*other).normal(5))
    # the same on every machine and in every process: no salted hash
    assert Draw.of("a", 1).integer(0, 10**6) == 568272


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_subsets_permutations_signs_and_choices(seed, n):
    draw = Draw(seed)
    size = draw.integer(0, n + 1)
    chosen = draw.subset(n, size)
    assert len(set(chosen)) == size and list(chosen) == sorted(chosen) and set(chosen) <= set(range(n))
    assert sorted(draw.permutation(n).tolist()) == list(range(n))
    assert set(draw.signs(n).tolist()) <= {1.0, -1.0}
    assert draw.choice(range(n)) in range(n)
    assert set(draw.integers(-2, 3, 20).tolist()) <= {-2, -1, 0, 1, 2}


def test_every_value_occurs():
    draw = Draw(0)
    assert set(draw.signs(50).tolist()) == {1.0, -1.0}
    assert {draw.subset(4, 2) for _ in range(200)} == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)}
    assert {draw.choice("abc") for _ in range(60)} == set("abc")
    assert {draw.integer(0, 3) for _ in range(60)} == {0, 1, 2}


def test_numpy_generators_follow_the_seed():
    one, two = Draw(3), Draw(3)
    first = one.rng().integers(0, 1000, 5)
    assert np.array_equal(first, two.rng().integers(0, 1000, 5))
    assert not np.array_equal(first, one.rng().integers(0, 1000, 5))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="size must be at most n = 3, got 4"):
        Draw(0).subset(3, 4)
    with pytest.raises(ValueError, match="options must not be empty"):
        Draw(0).choice([])
