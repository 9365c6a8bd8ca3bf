"""Answers to gelu-exercise-direction."""

import itertools

import numpy as np


def separates(v, rows):
    values = {abs(sum(p * q for p, q in zip(w, v))) for w in rows}
    return len(values) == len(rows) and 0 not in values


def right(page):
    def by_search(rows):
        for size in itertools.count(1):
            for v in itertools.product(range(-size, size + 1), repeat=len(rows[0])):
                if separates(v, rows):
                    return list(v)

    def by_digits(rows):
        base = 4 * max(abs(entry) for row in rows for entry in row) + 1
        return np.array([base**p for p in range(len(rows[0]))])

    return [by_search, by_digits]


def wrong(page):
    return [
        (lambda rows: None, "you gave None"),
        (lambda rows: (1,) * len(rows[0]), "to"),
        (lambda rows: tuple(range(1, len(rows[0]) + 1)), "sends"),
        (lambda rows: tuple(2**p for p in range(len(rows[0]))), "sends"),
        (lambda rows: (0,) * len(rows[0]), "to 0"),
        (lambda rows: tuple(np.pi**p for p in range(len(rows[0]))), "integers"),
        (lambda rows: (float("nan"),) * len(rows[0]), "integers"),
        (lambda rows: (1, 5, 26, 131, 656), "integers"),
        (lambda rows: "1" * len(rows[0]), "integers"),
    ]
