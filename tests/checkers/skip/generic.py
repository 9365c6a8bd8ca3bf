"""Answers to generic-exercise-count."""

import itertools
from collections import Counter

import numpy as np


class Equal:
    def __eq__(self, other):
        return True

    def __ne__(self, other):
        return False


def pairs(l):
    return itertools.product(range(-l, l + 1), repeat=4)


def right(page):
    def by_columns(l):
        """Rows of X and columns of V: x·v = -l² for matching ones, 0 for the others."""
        whole = np.array(list(pairs(l)))
        det = whole[:, 0] * whole[:, 3] - whole[:, 1] * whole[:, 2]
        whole, det = whole[det != 0], det[det != 0]
        adjugate = whole[:, [3, 1, 2, 0]] * np.array([1, -1, -1, 1])
        scaled = -l * l * adjugate
        fits = (scaled % det[:, None] == 0) & (abs(scaled) <= l * abs(det[:, None]))
        return fits.all(1).sum()  # an integer of NumPy

    def by_determinant(l):
        kinds = Counter()
        for a, b, c, d in pairs(l):
            det = a * d - b * c
            if det and all(l * l * e % det == 0 and l * abs(e) <= abs(det) for e in (a, b, c, d)):
                kinds[det] += 1
        return sum(kinds.values())

    return [by_columns, by_determinant]


def wrong(page):
    def plus_identity_unbounded(l):
        return sum(
            bool(det) and all(l * l * e % det == 0 for e in (a, b, c, d))
            for a, b, c, d in pairs(l)
            for det in [a * d - b * c]
        )

    def unit_determinant(l):
        return sum(abs(a * d - b * c) == l * l for a, b, c, d in pairs(l))

    def of_the_grid_points(l):
        """-I on the grid of integers instead of multiples of 1/l."""
        return sum(abs(a * d - b * c) == 1 for a, b, c, d in pairs(l))

    def in_floats(l):
        found = 0
        for entries in pairs(l):
            V = np.array(entries).reshape(2, 2) / l
            if abs(np.linalg.det(V)) > 1e-12:
                X = -np.linalg.inv(V) * l
                found += bool((X.round() == X).all() and abs(X).max() <= l)
        return found

    def by_share(l):
        """A share times a total: no whole number, not even where it is near the right one."""
        return unit_determinant(l) / len(grid := list(pairs(l))) * len(grid)

    return [
        (lambda l: 0, "for l = 1"),
        (lambda l: None, "for l = 1"),
        (lambda l: {1: 40, 2: 120}.get(l, 280), "for l = 3"),
        (plus_identity_unbounded, "for l ="),
        (unit_determinant, "for l ="),
        (of_the_grid_points, "for l = 2"),
        (in_floats, "for l ="),
        (lambda l: float("nan"), "nan"),
        (lambda l: Equal(), "whole number"),
        (lambda l: np.array([40, 120]), "whole number"),
        (lambda l: by_share(l), "whole number"),
    ]
