"""Answers to theorem-exercise-code."""

import itertools

import numpy as np


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

    return [by_trying, with_arrays]


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

    return [
        (lambda f1, f2, swap_in, swap_out: None, "you gave None"),
        (lambda f1, f2, swap_in, swap_out: [0, 1, 2][: len(f2)], "you gave"),
        (first_layer_only, "you gave"),
        (second_layer_only, "you gave"),
        (last_word, "you gave"),
        (whole_function, "you gave"),
        (backwards, "you gave"),
    ]
