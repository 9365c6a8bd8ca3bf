"""Answers to theorem-exercise-code."""

import itertools

import numpy as np
import torch


def forced(f1, swap_in, size):
    """What the first layer demands, or None where it contradicts itself."""
    action = {}
    for x, y in enumerate(f1):
        if action.setdefault(y, f1[swap_in[x]]) != f1[swap_in[x]]:
            return None
    return [action[y] for y in range(size)]


def right(page):
    def by_trying(f1, f2, swap_in, swap_out):
        for action in itertools.permutations(range(len(f2))):
            first = all(action[y] == f1[swap_in[x]] for x, y in enumerate(f1))
            if first and all(f2[action[y]] == swap_out[z] for y, z in enumerate(f2)):
                return action  # a tuple

    def with_arrays(f1, f2, swap_in, swap_out):
        action = forced(f1, swap_in, len(f2))
        f2, swap_out = np.array(f2), np.array(swap_out)
        return None if action is None or (f2[action] != swap_out[f2]).any() else np.array(action)

    def along_a_section(f1, f2, swap_in, swap_out):
        """One x over each y gives the only candidate; two equations of maps test it, as a tensor."""
        action = [f1[swap_in[f1.index(y)]] for y in range(len(f2))]
        first = [action[y] for y in f1] == [f1[x] for x in swap_in]
        second = [f2[y] for y in action] == [swap_out[z] for z in f2]
        return torch.tensor(action) if first and second else None

    return [by_trying, with_arrays, along_a_section]


def wrong(page):
    def first_layer_only(f1, f2, swap_in, swap_out):
        return forced(f1, swap_in, len(f2))

    def second_layer_only(f1, f2, swap_in, swap_out):
        for action in itertools.permutations(range(len(f2))):
            if all(f2[action[y]] == swap_out[z] for y, z in enumerate(f2)):
                return list(action)

    def last_word(f1, f2, swap_in, swap_out):
        """Contradictions of the first layer are not noticed."""
        action = {y: f1[swap_in[x]] for x, y in enumerate(f1)}
        action = [action[y] for y in range(len(f2))]
        return action if all(f2[action[y]] == swap_out[z] for y, z in enumerate(f2)) else None

    def whole_function(f1, f2, swap_in, swap_out):
        """The action, if the composition is equivariant."""
        F = [f2[y] for y in f1]
        fits = all(F[swap_in[x]] == swap_out[z] for x, z in enumerate(F))
        action = {y: f1[swap_in[x]] for x, y in enumerate(f1)}
        return [action[y] for y in range(len(f2))] if fits else None

    def backwards(f1, f2, swap_in, swap_out):
        action = forced(f1, swap_in, len(f2))
        good = action is not None and all(f2[action[y]] == swap_out[z] for y, z in enumerate(f2))
        return [action.index(y) for y in range(len(f2))] if good else None

    def a_section_without_a_test(f1, f2, swap_in, swap_out):
        action = [f1[swap_in[f1.index(y)]] for y in range(len(f2))]
        return action if all(f2[action[y]] == swap_out[z] for y, z in enumerate(f2)) else None

    def with_halves(f1, f2, swap_in, swap_out):
        action = right(page)[0](f1, f2, swap_in, swap_out)
        return None if action is None else [y + 0.5 for y in action]

    return [
        (lambda f1, f2, swap_in, swap_out: None, "you gave None"),
        (lambda f1, f2, swap_in, swap_out: 0, "return a list or None"),
        (lambda f1, f2, swap_in, swap_out: "none", "return a list or None"),
        (lambda f1, f2, swap_in, swap_out: [float("nan")] * len(f2), "you gave"),
        (lambda f1, f2, swap_in, swap_out: [Anything(0)] * len(f2), "you gave"),
        (a_section_without_a_test, "both layers"),
        (with_halves, "Is it a permutation"),
        (lambda f1, f2, swap_in, swap_out: [0, 1, 2][: len(f2)], "you gave"),
        (first_layer_only, "you gave"),
        (second_layer_only, "you gave"),
        (last_word, "you gave"),
        (whole_function, "you gave"),
        (backwards, "you gave"),
    ]


class Anything(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
