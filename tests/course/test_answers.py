"""What is handed in is read as plain numbers, exactly, or refused with words that help."""

import json
from fractions import Fraction

import nbformat
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from nbformat.v4 import new_code_cell, new_notebook, new_output

from samefn.course.answers import Answer, Malformed, parse, plain, read_number
from samefn.course.verify import answers_in, judge

DIGITS = 10_000


@given(st.integers(-(10**6), 10**6), st.integers(1, DIGITS))
def test_a_float_is_read_as_the_fraction_it_rounds(p, q):
    if abs(p / q) <= 1e5:
        assert read_number(p / q) == Fraction(p, q) == read_number(str(Fraction(p, q)))


@given(st.floats(-1e6, 1e6, allow_nan=False))
@example(1e-8)
@example(1 / 3 + 1e-8)
def test_other_floats_are_what_they_are(x):
    near = Fraction(x).limit_denominator(DIGITS)
    assert read_number(x) == (near if abs(near - Fraction(x)) <= Fraction(1, 10**9) else Fraction(x))


@pytest.mark.parametrize("value", [True, None, "nan", "1e5", "1/0", " 1", [1], {}, 10**10, 1e300, "9" * 19])
def test_no_numbers(value):
    with pytest.raises(Malformed):
        read_number(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[NaN]", "finite"),
        ("[-Infinity]", "finite"),
        ("[1e999]", None),
        ("[" * 5000 + "]" * 5000, "nested"),
        ("{" * 9, "nested"),
        ("9" * 400_000, "characters"),
        ("[" + "9" * 5000 + "]", "digits"),
        ("__import__('os')", "JSON"),
        ("", "JSON"),
    ],
)
def test_what_is_no_answer(text, words):
    if words is None:  # JSON's own overflow: the number that comes out is refused
        with pytest.raises(Malformed, match="finite"):
            Answer({"x": parse(text)}).vector("x")
    else:
        with pytest.raises(Malformed, match=words):
            parse(text)


def test_plain_takes_what_students_have():
    sympy = pytest.importorskip("sympy")
    same = [[1, 2], [3, 4]]
    for value in (same, torch.tensor(same), np.array(same), ((1, 2), (3, 4)), sympy.Matrix(same).tolist()):
        made = plain(value, "x")
        assert [list(map(read_number, row)) for row in made] == same
    assert plain({3, 1}, "S") == [1, 3] and plain(Fraction(1, 3), "x") == "1/3"
    assert plain(np.int64(3), "x") == 3 and plain(np.flatnonzero([0, 1, 1]), "x") == [1, 2]


@pytest.mark.parametrize("value", [object(), print, b"1", 1j, True, None, [object()], {"a": {"b": object()}}])
def test_plain_refuses_the_rest(value):
    with pytest.raises(Malformed, match="must be made of numbers and lists"):
        plain(value, "x")


class Equal(float):
    __eq__ = __le__ = __ge__ = lambda *a: True
    __hash__ = float.__hash__


def test_no_class_of_the_student_comes_through():
    with pytest.raises(Malformed, match="Equal"):
        plain([Equal(0)], "x")


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (lambda a: a.indices("S", 3), "S must be a list"),
        (lambda a: a.indices("T", 3), "T must have integers from 0 to 2"),
        (lambda a: a.indices("U", 3), "different"),
        (lambda a: a.indices("V", 3), "integers"),
        (lambda a: a.permutation("W", 3), "3 entries, got 2"),
        (lambda a: a.signs("W", 2), "1 and -1"),
        (lambda a: a.matrix("M", 2, 2), "a row of M must have 2 entries, got 1"),
        (lambda a: a.matrix("E", None, 2), "at least one row"),
        (lambda a: a.vector("X"), "X is missing"),
        (lambda a: a.items("L"), "at most 64"),
        (lambda a: Answer([1]), "values by name"),
    ],
)
def test_each_form_says_what_was_needed(read, words):
    values = {
        "S": 1,
        "T": [3],
        "U": [1, 1],
        "V": [0.5],
        "W": [0, 2],
        "M": [[1, 2], [1]],
        "E": [],
        "L": [0] * 65,
    }
    with pytest.raises(Malformed, match=words):
        read(Answer(values))


def notebook(*texts):
    cells = [new_code_cell(outputs=[new_output("display_data", {"text/plain": text})]) for text in texts]
    return nbformat.writes(new_notebook(cells=cells))


def test_the_last_answer_in_the_notebook_counts():
    found = answers_in(notebook("recorded answer ps6/near 1", "x", 'recorded answer ps6/near {"S": [0]}'))
    assert found == {"ps6/near": '{"S": [0]}'}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"cells": 1}', '{"cells": [1]}', '{"cells": [{"outputs": [1]}]}', "[" * 10**5]
)
def test_what_is_no_notebook_earns_nothing(text):
    given = {"up": [[1, 0]], "down": [[0, 1]], "goals": ["0.5"] * 4}
    judged = judge("ps6", {"near": given}, text)["near"]
    assert judged["points"] == 0 and "must be a notebook" in judged["lines"][0]


def test_a_fault_of_the_checker_is_nobodys_zero():
    judged = judge("ps6", {"near": {}}, notebook('recorded answer ps6/near {"S": [0]}'))["near"]
    assert judged["points"] is None and judged["lines"] == ["? the checker failed"]
    json.dumps(judged)
