"""Answers to mirror-exercise-fate."""

import itertools

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

KINDS = {1: "fixed", -1: "negated", 0: "swapped"}


def by_assignment(A, tolerance, *, back=True, near=True, columns=False, everywhere=False, signed=True):
    A = np.asarray(A)
    rows, order = linear_sum_assignment(-abs(A))
    Q = np.zeros_like(A)
    Q[rows, order] = np.sign(A[rows, order])
    off = np.linalg.norm(A - Q, axis=0 if columns else 1)
    off = np.full_like(off, off.max()) if everywhere else off
    clear = (off <= tolerance) | (not near)
    if back:
        twice = (Q @ Q).diagonal()
        clear &= (twice if signed else abs(twice)) == 1
    return [KINDS[int(q)] if ok else "unclear" for q, ok in zip(Q.diagonal(), clear)]


def right(page):
    def by_trying(A, tolerance):
        """The best of all orders of the columns, and distances by maximum, as an array."""
        rows = range(len(A))
        size = abs(np.asarray(A)).tolist()
        to = max(itertools.permutations(rows), key=lambda order: sum(size[i][order[i]] for i in rows))
        sign = [np.sign(float(A[i, to[i]])) for i in rows]
        off = [max(abs(float(A[i, j]) - sign[i] * (j == to[i])) for j in rows) for i in rows]
        back = [to[to[i]] == i and sign[i] == sign[to[i]] for i in rows]
        kinds = np.where(
            [to[i] != i for i in rows], "swapped", np.where(np.array(sign) > 0, "fixed", "negated")
        )
        return np.where((np.array(off) <= tolerance) & back, kinds, "unclear")

    def as_a_tuple(A, tolerance):
        return tuple(by_assignment(A, tolerance))

    return [by_assignment, by_trying, as_a_tuple]


def wrong(page):
    def by_diagonal(A, tolerance):
        return [
            "fixed" if x > 1 - tolerance else "negated" if x < tolerance - 1 else "swapped"
            for x in A.diagonal().tolist()
        ]

    def row_by_row(A, tolerance, signed=True):
        """The nearest signed unit vector of each row, though two rows may share one."""
        kinds = []
        for i, row in enumerate(A):
            j = int(row.abs().argmax())
            target = torch.zeros(len(A))
            target[j] = row[j].sign()
            back = A[j].abs().argmax() == i and (not signed or A[j, i].sign() == row[j].sign())
            clear = (row - target).norm() <= tolerance and back
            kinds.append("unclear" if not clear else "swapped" if j != i else KINDS[int(row[j].sign())])
        return kinds

    def signs_forgotten(A, tolerance):
        """After two steps a unit may be back with the other sign."""
        kinds = by_assignment(A, tolerance, back=False)
        order = abs(A).argmax(1)
        return [k if order[order[i]] == i else "unclear" for i, k in enumerate(kinds)]

    def by_largest_entry(A, tolerance):
        """Only the largest entry of a row is looked at."""
        kinds = by_assignment(A, tolerance, near=False)
        return [k if abs(float(row.abs().max()) - 1) <= tolerance else "unclear" for k, row in zip(kinds, A)]

    return [
        (lambda A, tolerance: ["unclear"] * len(A), "exact signed permutation"),
        (lambda A, tolerance: None, "return a list of words"),
        (lambda A, tolerance: A, "exact signed permutation"),
        (lambda A, tolerance: [Anything("fixed")] * len(A), "exact signed permutation"),
        (lambda A, tolerance: by_assignment(A, 0.3), "leaning row is clear"),
        (lambda A, tolerance: by_assignment(A, max(tolerance, 0.1)), "larger than the tolerance"),
        (row_by_row, "far from Q"),
        (signs_forgotten, "far from Q"),
        (lambda A, tolerance: by_assignment(A, tolerance, signed=False), "negated after two steps"),
        (by_diagonal, "far from Q"),
        (lambda A, tolerance: by_assignment(A, tolerance, back=False), "cycle of three"),
        (lambda A, tolerance: by_assignment(A, tolerance, near=False), "far from Q"),
        (lambda A, tolerance: by_assignment(A, tolerance, columns=True), "far from Q"),
        (lambda A, tolerance: by_assignment(A, tolerance, everywhere=True), "far from Q"),
        (lambda A, tolerance: by_assignment(A, tolerance / 100), "noise"),
        (by_largest_entry, "far from Q"),
        (lambda A, tolerance: by_assignment(abs(A), tolerance), "exact signed permutation"),
    ]


class Anything(str):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = str.__hash__
