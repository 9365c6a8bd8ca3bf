"""Annotations at run time: what is said, where they hold, and what they leave as it was."""

import importlib
import inspect
import pickle
import random
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import samefn
from samefn import MLP, DeepMLP, Residual, absorb
from samefn.activations import leaky_relu
from samefn.draw import Draw
from samefn.equivariance.groups import cyclic, generated
from samefn.networks import random_mlp


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package whose annotations are enforced as the library's are."""
    from samefn import arguments

    (tmp_path / "enforced").mkdir()
    (tmp_path / "enforced" / "__init__.py").write_text("")
    (tmp_path / "enforced" / "base.py").write_text(
        textwrap.dedent(
            """
            from __future__ import annotations
            from dataclasses import dataclass
            from functools import cache
            from typing import Literal, no_type_check
            from jaxtyping import Float
            from torch import Tensor
            from samefn.arguments import Count, Share

            @dataclass(frozen=True)
            class Base:
                count: Count

            class Box:
                size = 3
                def filled(self, x: Float[Tensor, "... {self.size}"], share: Share = 0.5) -> Tensor: return x
                @classmethod
                def of(cls, n: int) -> Box: return cls()
                @staticmethod
                def twice(n: float) -> float: return 2 * n

            @cache
            def cached(p: tuple[int, ...]) -> int: return len(p)
            @no_type_check
            def free(n: int) -> int: return n
            def late(x: Later) -> Later: return x
            class Later: pass
            def some(*numbers: int, **named: str) -> int: return len(numbers)
            def pair(a: Float[Tensor, "n m"], b: Float[Tensor, "m n"], kind: Literal["x", "y"] = "x"): pass
            def maps(table: dict[str, int] | None, rows: list[Float[Tensor, "_ m"]] = ()) -> int: return 1
            """
        )
    )
    (tmp_path / "enforced" / "derived.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom .base import Base\n"
        "@dataclass(frozen=True)\nclass Derived(Base):\n    name: str = 'x'\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [arguments.Enforcer("enforced"), *sys.meta_path])
    yield importlib.import_module("enforced.base"), importlib.import_module("enforced.derived")
    for name in [n for n in sys.modules if n.split(".")[0] == "enforced"]:
        del sys.modules[name]


ones = torch.ones


def test_what_came_and_what_is_needed(package):
    base, derived = package
    for call, error, message in [
        (lambda: base.Base(0), ValueError, "count must be an integer of at least 1, got 0"),
        (lambda: base.Base(True), TypeError, "count must be an integer of at least 1, got True"),
        (lambda: derived.Derived("3"), TypeError, "count must be an integer of at least 1, got '3'"),
        (lambda: derived.Derived(3, name=3), TypeError, "name must be a string, got 3"),
        (
            lambda: base.Box().filled(ones(4)),
            ValueError,
            "x must be a floating torch.Tensor of shape (..., 3), got a torch.float64 Tensor of shape (4,)",
        ),
        (lambda: base.Box().filled(ones(3), 2), ValueError, "share must be a number from 0 to 1, got 2"),
        (lambda: base.Box.of(1.5), TypeError, "n must be an integer, got 1.5"),
        (lambda: base.Box.twice(None), TypeError, "n must be a number, got None"),
        (lambda: base.cached([1]), TypeError, "p must be a tuple, got [1]"),
        (lambda: base.cached((1, 2.5)), TypeError, "p[1] must be an integer, got 2.5"),
        (lambda: base.late(3), TypeError, "x must be a Later, got 3"),
        (lambda: base.some(1, "2"), TypeError, "numbers[1] must be an integer, got '2'"),
        (lambda: base.some(1, a=2), TypeError, "a must be a string, got 2"),
        (
            lambda: base.pair(ones(2, 3), ones(3, 4)),
            ValueError,
            "b must be a floating torch.Tensor of shape (m, n) with n = 2, m = 3, "
            "got a torch.float64 Tensor of shape (3, 4)",
        ),
        (
            lambda: base.pair(b=np.ones((3, 2)), a=ones(2, 3)),
            TypeError,
            "b must be a floating torch.Tensor of shape (m, n) with n = 2, m = 3, "
            "got a float64 ndarray of shape (3, 2)",
        ),
        (lambda: base.pair(ones(1, 1), ones(1, 1), "z"), ValueError, "kind must be one of 'x', 'y', got 'z'"),
        (lambda: base.maps({"a": 1, "b": "x"}), TypeError, "table['b'] must be an integer, got 'x'"),
        (
            lambda: base.maps(None, [ones(2, 3), ones(2, 4)]),
            ValueError,
            "rows[1] must be a floating torch.Tensor of shape (_, m) with m = 3, "
            "got a torch.float64 Tensor of shape (2, 4)",
        ),
        (lambda: base.maps(3), TypeError, "table must be None or a dict, got 3"),
    ]:
        with pytest.raises(error) as raised:
            call()
        assert type(raised.value) is error and str(raised.value) == message


def test_what_fits_passes(package):
    base, derived = package
    assert derived.Derived(2, name="y").count == 2 and base.Box().filled(ones(2, 3), share=1).shape == (2, 3)
    assert base.Box.twice(2) == 4 and base.free("n") == "n" and base.cached((1, 2)) == 2
    assert base.some() == 0 and base.some(1, 2, a="b") == 2 and base.maps(None) == 1
    assert base.cached.__wrapped__.cache_info().currsize == 1


def test_calls_that_python_refuses_are_refused_in_its_words():
    for call, words in [
        (lambda: random_mlp(2, 3), "missing 1 required keyword-only argument: 'generator'"),
        (lambda: random_mlp(2), "missing 1 required"),
        (lambda: random_mlp(2, 3, "relu", 4, generator=Draw(0)), "positional"),
        (lambda: random_mlp(2, 3, colour=1, generator=Draw(0)), "colour"),
    ]:
        with pytest.raises(TypeError, match=words):
            call()


def test_the_traceback_ends_where_the_call_is():
    """The frames of the check are hidden from those who show tracebacks."""
    with pytest.raises(TypeError) as error:
        absorb(3)
    hidden = [entry.frame.f_locals.get("__tracebackhide__", False) for entry in error.traceback]
    assert hidden == [False, True]


def test_functions_stay_what_they_were():
    assert absorb.__name__ == "absorb" and absorb.__module__ == "samefn.skip.absorption" and absorb.__doc__
    assert list(inspect.signature(MLP).parameters) == ["up", "down", "activation", "up_bias", "down_bias"]
    assert pickle.loads(pickle.dumps(absorb)) is absorb
    assert "def absorb(residual" in inspect.getsource(absorb)
    assert cyclic(3) is cyclic(3) and generated((1, 0)) is generated((1, 0))


def test_modules_are_pickled_and_differentiated_as_ever():
    block = random_mlp(3, 4, generator=Draw(0))
    x = Draw(1).normal(5, 3)
    again = pickle.loads(pickle.dumps(MLP(block.up, block.down, "tanh")))
    assert torch.equal(again.up, block.up)
    one = torch.func.jacrev(block)(x[0])
    assert torch.allclose(torch.func.vmap(torch.func.jacrev(block))(x)[0], one)
    assert torch.allclose(torch.autograd.functional.jacobian(block, x[0]), one)
    assert torch.allclose(torch.func.vmap(block)(x), block(x))


def test_no_generator_is_touched():
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    network = DeepMLP([torch.eye(2)] * 3)
    network(torch.ones(1, 2))
    with pytest.raises(TypeError):
        DeepMLP([torch.eye(2), 3])
    assert random.getstate() == before[0] and np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(torch.get_rng_state(), before[2])


def test_threads_do_not_share_sizes():
    def use(d):
        block = random_mlp(d, d + 1, generator=Draw(d))
        return [Residual(block)(torch.ones(d)).shape for _ in range(50)] == [(d,)] * 50

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(use, range(1, 20)))


def test_a_module_is_held_to_its_annotations_after_a_reload():
    script = "import importlib, samefn.activations as a; importlib.reload(a); a.leaky_relu('x')"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "TypeError: slope must be a finite number, got 'x'" in run.stderr


def test_the_package_itself_is_light():
    script = "import sys, samefn; print('torch' in sys.modules, samefn.__version__)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["False", samefn.__version__]


@pytest.mark.parametrize("number", [np.float64(0.5), 1 / 2, 2])
def test_numbers_of_numpy_that_are_numbers_of_python_pass(number):
    assert leaky_relu(number).degree == 1
