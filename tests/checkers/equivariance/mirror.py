"""Answers to mirror-exercise-fate."""

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

KINDS = {1: "fixed", -1: "negated", 0: "swapped"}


def by_assignment(A, tolerance, *, back=True, near=True, columns=False, everywhere=False):
    A = np.asarray(A)
    rows, order = linear_sum_assignment(-abs(A))
    Q = np.zeros_like(A)
    Q[rows, order] = np.sign(A[rows, order])
    off = np.linalg.norm(A - Q, axis=0 if columns else 1)
    off = np.full_like(off, off.max()) if everywhere else off
    clear = (off <= tolerance) | (not near)
    if back:
        clear &= (Q @ Q).diagonal() == 1
    return [KINDS[int(q)] if ok else "unclear" for q, ok in zip(Q.diagonal(), clear)]


def right(page):
    def row_by_row(A, tolerance):
        kinds = []
        for i, row in enumerate(A):
            j = int(row.abs().argmax())
            target = torch.zeros(len(A))
            target[j] = row[j].sign()
            back = A[j].abs().argmax() == i and A[j, i].sign() == row[j].sign()
            clear = (row - target).norm() <= tolerance and back
            kinds.append("unclear" if not clear else "swapped" if j != i else KINDS[int(row[j].sign())])
        return tuple(kinds)

    return [by_assignment, row_by_row]


def wrong(page):
    def by_diagonal(A, tolerance):
        return [
            "fixed" if x > 1 - tolerance else "negated" if x < tolerance - 1 else "swapped"
            for x in A.diagonal().tolist()
        ]

    def by_largest_entry(A, tolerance):
        """Only the largest entry of a row is looked at."""
        kinds = by_assignment(A, tolerance, near=False)
        return [k if abs(float(row.abs().max()) - 1) <= tolerance else "unclear" for k, row in zip(kinds, A)]

    return [
        (lambda A, tolerance: ["unclear"] * len(A), "exact signed permutation"),
        (by_diagonal, "far from any"),
        (lambda A, tolerance: by_assignment(A, tolerance, back=False), "cycle of three"),
        (lambda A, tolerance: by_assignment(A, tolerance, near=False), "far from any"),
        (lambda A, tolerance: by_assignment(A, tolerance, columns=True), "far from any"),
        (lambda A, tolerance: by_assignment(A, tolerance, everywhere=True), "far from any"),
        (lambda A, tolerance: by_assignment(A, tolerance / 100), "noise"),
        (by_largest_entry, "far from any"),
        (lambda A, tolerance: by_assignment(abs(A), tolerance), "exact signed permutation"),
    ]
