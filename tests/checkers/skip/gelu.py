"""Answers to gelu-exercise-direction."""

import itertools

import numpy as np
import torch


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

    def by_whole_tensor(rows):
        return torch.tensor(by_search(rows))

    return [by_search, by_digits, by_whole_tensor]


def wrong(page):
    def powers(base):
        return lambda rows: tuple(base(rows) ** p for p in range(len(rows[0])))

    def largest(rows):
        return max(abs(entry) for row in rows for entry in row)

    def taken_out(rows):
        v = (1,) * len(rows[0])
        rows.clear()
        return v

    return [
        (powers(lambda rows: 1000), "sends the rows (1000, 0) and (0, 1)"),
        (powers(lambda rows: 10 * len(rows)), "sends the rows"),
        (powers(lambda rows: 2 * largest(rows)), "(1, 0) and (1, -1)"),
        (powers(lambda rows: largest(rows) + 1), "(1, 0) and (1, -1)"),
        (lambda rows: 7.3 * torch.pi ** torch.arange(len(rows[0])), "integers"),
        (lambda rows: 3, "2 integers, not 3"),
        (taken_out, "sends the rows"),
        (lambda rows: None, "not None"),
        (lambda rows: (1,) * len(rows[0]), "to"),
        (lambda rows: tuple(range(1, len(rows[0]) + 1)), "sends"),
        (lambda rows: tuple(2**p for p in range(len(rows[0]))), "sends"),
        (lambda rows: (0,) * len(rows[0]), "to 0"),
        (lambda rows: tuple(np.pi**p for p in range(len(rows[0]))), "integers"),
        (lambda rows: (float("nan"),) * len(rows[0]), "integers"),
        (lambda rows: (1, 5, 26, 131, 656), "integers"),
        (lambda rows: "1" * len(rows[0]), "integers"),
    ]
