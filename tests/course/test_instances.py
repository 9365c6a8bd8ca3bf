"""The instances: the same for a student whenever drawn, another for everyone else, equally hard for 1,000 ids
(100 to 300 where the oracle or the draw is slow).
"""

import hashlib
import itertools
import json
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

import instances
from instances import Stream, draw
from samefn.course.ps2 import relu_network
from samefn.course.questions import ASSIGNMENTS
from solving import QUESTIONS, SECRET

IDS = [f"s{number}" for number in range(1000)]
FIRST = "a6e7b6"


def drawn(assignment, name, student):
    return draw(assignment, SECRET, "cs", "spring", student)[name]


def test_stream_is_uniform_enough_and_fixed():
    stream = Stream(SECRET, "a")
    counts = np.bincount([stream.randint(0, 6) for _ in range(70_000)], minlength=7)
    assert abs(counts - 10_000).max() < 500  # five standard deviations
    assert (
        Stream(SECRET, "a").randbytes(9)
        == Stream(SECRET, "a").randbytes(9)
        != Stream(SECRET, "b").randbytes(9)
    )


@pytest.mark.parametrize("assignment", ASSIGNMENTS)
def test_everything_in_the_message_changes_the_instance(assignment):
    base = assignment, SECRET, "cs", "spring", "ann"
    assert draw(*base) == draw(*base)
    others = [(1, b"\2" * 32), (2, "cs2"), (3, "autumn"), (4, "bob")]
    for at, other in others:
        changed = draw(*base[:at], other, *base[at + 1 :])
        assert all(changed[name] != value for name, value in draw(*base).items())
    assert SECRET.hex() not in json.dumps(draw(*base))


def test_the_instances_of_a_published_key_are_those_of_every_machine():
    """If this fails, grading on another version would draw other instances than were handed out."""
    made = [draw(assignment, b"practice", "practice", "practice", "practice") for assignment in ASSIGNMENTS]
    assert hashlib.sha256(json.dumps(made).encode()).hexdigest()[:6] == FIRST


# --- equally hard: an oracle of its own for each question, over 1,000 ids ------------------------


def matrices(given):
    return np.einsum("id,ie->ide", given["down"], given["up"])


def collinear(rows):
    rows = np.array(rows, float)
    rows /= np.linalg.norm(rows, axis=1)[:, None]
    cosines = abs(rows @ rows.T) - np.eye(len(rows))
    return cosines.max() > 1 - 1e-9


def sets(given):
    choices = np.array(list(itertools.product((0, 1), repeat=12)))
    found = choices[(choices @ matrices(given).reshape(12, 9) == -2 * np.eye(3).ravel()).all(1)]
    assert len(found) == 2 and found.sum(1).tolist() == [4, 4] and not (found[0] & found[1]).any()
    assert np.linalg.matrix_rank(matrices(given).reshape(12, 9)) == 9 and not collinear(given["up"])


def best_bound(skip, terms):
    m, d = len(terms), len(skip)
    terms = terms.reshape(m, -1)
    cost = -np.concatenate([skip.ravel(), np.ones(m)])
    limits = [(-1, 1)] * d * d + [(None, 0)] * m
    return -linprog(cost, np.hstack([-terms, np.eye(m)]), np.zeros(m), bounds=limits).fun


def certificate(given):
    terms = 6 * matrices(given)
    assert 4 - 1e-6 <= best_bound(2 * np.eye(3), terms) <= 6
    assert 6 + np.minimum(0, np.trace(terms, axis1=1, axis2=2)).sum() <= 0  # Y = I


def decide(given):
    solved = 0
    for block in given["blocks"]:
        terms, skip = 6 * matrices(block).reshape(14, 16), np.ravel(block["skip"])
        assert np.linalg.matrix_rank(terms) == 14
        chi, *_ = np.linalg.lstsq(terms.T, -skip, rcond=None)
        works = np.allclose(terms.T @ chi, -skip) and set(chi.round(6) + 0.0) <= {0, 1}
        solved += works
        assert works or best_bound(np.array(block["skip"]), terms) > 1e-6
    assert solved == 3


def spare(given):
    x, y = given["w"]
    assert x and y and abs(x) != abs(y)


not_layerwise = spare


def gate(given):
    assert np.linalg.matrix_rank(given["M"]) == 3 and np.abs(given["M"]).max() <= 5 and np.all(given["M"])


def leaky_gelu(given):
    terms = 3 * matrices(given).reshape(8, 9)
    assert np.linalg.matrix_rank(terms) == 8 and all(given["bias"])
    chi, *_ = np.linalg.lstsq(terms.T, -np.ravel(given["skip"]), rcond=None)
    assert np.allclose(terms.T @ chi, -np.ravel(given["skip"]))
    assert sorted(chi.round(6) + 0.0) == [0] * 4 + [1] * 4


def difference(given):
    """Equal at random points, unequal in the cone, whose axis has no small coordinate."""
    first, second = ([np.array(W) for W in given[name]] for name in ("first", "second"))
    value = lambda net, x: net[2] @ np.maximum(net[1] @ np.maximum(net[0] @ x, 0), 0)
    x = np.random.default_rng(0).standard_normal((3, 200))
    assert np.allclose(value(first, x), value(second, x))
    row = next(row for row in first[1] if row.min() < -1)
    q = first[0][row < 0]
    axis = next(c for other in q[1:] for c in [np.cross(q[0], other)] if c.any())
    assert abs(axis).min() >= 5
    assert any(abs(value(first, s * axis) - value(second, s * axis)) > 0 for s in (1, -1))
    assert relu_network(given["first"], tuple(map(Fraction, (1, 2, 3)))) == value(first, np.array([1, 2, 3]))


def align(given):
    for layer in given["A"][:2]:
        rows = np.array(layer)
        gaps = [abs(u - s * v).max() for u, v in itertools.combinations(rows, 2) for s in (1, -1)]
        assert min(gaps) >= 8


def fewer(given):
    assert len(given["up"]) == 6
    pairs = {max((*u, b), (*(-x for x in u), -b)) for u, b in zip(given["up"], given["bias"])}
    assert len(pairs) == 5  # of which the even part of one cancels


def equivariant_maps(given):
    rho, out = np.array(given["rho"]), np.array(given["rho_out"])
    system = np.kron(np.eye(4), rho.T) - np.kron(out, np.eye(5))
    assert 20 - np.linalg.matrix_rank(system) == 3


def latent_action(given):
    W = np.array(given["W1"])
    gaps = [abs(u - s * v).max() for u, v in itertools.combinations(W, 2) for s in (1, -1)]
    assert min(gaps) >= 8
    r, s = np.eye(4)[given["r"]], np.eye(4)[given["s"]]
    power = np.linalg.matrix_power
    assert (
        (power(r, 4) == np.eye(4)).all() and (power(r, 2) != np.eye(4)).any() and (s @ s == np.eye(4)).all()
    )
    assert (power(r @ s, 2) == np.eye(4)).all()


def layerwise(given):
    W, a = np.array(given["W1"]), np.array(given["W2"])
    value = lambda x: a @ np.tanh(W @ x + np.array(given["b"]))
    x = np.random.default_rng(0).standard_normal(3) / 5
    assert np.allclose(value(x), value(x[[1, 2, 0]])) and len(W) == 6 and a.any(0).all()


def heads(given):
    M = [np.array(head["Q"]).T @ head["K"] for head in given["heads"]]
    R = [np.array(head["O"]) @ head["V"] for head in given["heads"]]
    alike = next((i, j) for i, j in itertools.combinations(range(3), 2) if (M[i] == M[j]).all())
    (other,) = {0, 1, 2} - {*alike}
    ranks = [np.linalg.matrix_rank(A) for A in (M[alike[0]], M[other], R[alike[0]] + R[alike[1]], R[other])]
    assert ranks == [2, 1, 2, 2]


def width(given):
    for block, (d, m, r) in zip(given["blocks"], ((3, 5, 3), (4, 2, 2), (3, 3, 2))):
        assert np.shape(block["up"]) == (m, d) and np.linalg.matrix_rank(block["up"]) == r
        assert block["width"] == m + 2 * d - r
        choices = np.array(list(itertools.product((0, 1), repeat=m)))
        sums = np.array(block["skip"]) + np.tensordot(choices, matrices(block), 1)
        assert abs(np.linalg.det(sums)).min() > 0.5  # an integer


def stack(given):
    for block in given["blocks"]:
        assert best_bound(np.eye(5), matrices(block)) >= 3 - 1e-6
        assert 5 + np.minimum(0, np.trace(matrices(block), axis1=1, axis2=2)).sum() <= 0


def near(given):
    assert np.abs(given["down"]).max() <= 150 and len(given["up"]) == 26 and not collinear(given["up"])


SLOW = {"certificate": 100, "decide": 100, "stack": 100, "sets": 300, "near": 300}


@pytest.mark.parametrize(("assignment", "name"), [q for q in QUESTIONS if q[1] != "rewrite"])
def test_equally_hard(assignment, name):
    for student in IDS[: SLOW.get(name)]:
        globals()[name](getattr(instances, f"draw_{name}")(Stream(SECRET, assignment, name, student)))
