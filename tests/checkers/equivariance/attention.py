"""Answers to attention-exercise-match."""

import torch
from scipy.optimize import linear_sum_assignment


def matching(move_scores, move_values, *, scores_count=True, values_count=True, rtol=0.0, atol=1e-8):
    near = lambda a, b: torch.allclose(a, b, rtol=rtol, atol=atol)

    def answer(scores, values, g):
        moved = move_scores(scores, g), move_values(values, g)
        partners = []
        for M, R in zip(*moved):
            found = [
                h
                for h in range(len(scores))
                if (not scores_count or near(M, scores[h])) and (not values_count or near(R, values[h]))
            ]
            if not found:
                return None
            partners.append(found[0])
        return partners

    return answer


def move_scores(M, g):
    inverse = torch.linalg.inv(g)
    return inverse.T @ M @ inverse


def move_values(R, g):
    return g @ R @ torch.linalg.inv(g)


def right(page):
    exact = matching(move_scores, move_values)

    def as_tensor(scores, values, g):
        found = exact(scores, values, g)
        return None if found is None else torch.tensor(found)

    def pulled_back(scores, values, g):
        """Compare gᵀM_{p(h)}g with M_h: the same equations, solved backwards."""
        back = matching(lambda M, g: g.T @ M @ g, lambda R, g: torch.linalg.solve(g, R @ g))
        found = back(scores, values, g)
        return None if found is None else tuple(found.index(h) for h in range(len(found)))

    return [exact, as_tensor, pulled_back]


def wrong(page):
    turned = lambda M, g: g @ M @ g.T

    def one_by_one(scores, values, g):
        """The M_h have partners, and the R_h have some, perhaps others."""
        found = [
            matching(move_scores, move_values, scores_count=s, values_count=not s)(scores, values, g)
            for s in (True, False)
        ]
        return None if None in found else found[0]

    def nearest(scores, values, g):
        """An assignment always finds partners."""
        moved = move_scores(scores, g), move_values(values, g)
        off = sum((a[:, None] - b[None]).abs().sum((2, 3)) for a, b in zip(moved, (scores, values)))
        return linear_sum_assignment(off)[1]

    def from_one(scores, values, g):
        found = matching(move_scores, move_values)(scores, values, g)
        return None if found is None else [h + 1 for h in found]

    def with_halves(scores, values, g):
        found = matching(move_scores, move_values)(scores, values, g)
        return None if found is None else [h + 0.5 for h in found]

    return [
        (lambda scores, values, g: None, "orthogonal"),
        (lambda scores, values, g: list(range(len(scores))), "orthogonal"),
        (matching(move_scores, move_values, values_count=False), "one R_h was changed"),
        (matching(move_scores, move_values, scores_count=False), "M_h tells them"),
        (matching(turned, turned), "non-orthogonal"),
        (matching(move_values, move_values), "non-orthogonal"),
        (matching(turned, move_values), "non-orthogonal"),
        (matching(lambda M, g: g.T @ M @ g, lambda R, g: torch.linalg.solve(g, R @ g)), "orthogonal"),
        (lambda scores, values, g: [], "a list of"),
        (lambda scores, values, g: 0, "return a list of heads or None"),
        (lambda scores, values, g: [float("nan")] * len(scores), "orthogonal"),
        (lambda scores, values, g: [Anything(0)] * len(scores), "orthogonal"),
        (one_by_one, "different partners"),
        (nearest, "one R_h was changed"),
        (from_one, "orthogonal"),
        (with_halves, "orthogonal"),
        (matching(move_scores, move_values, atol=1e-2), "one R_h was changed"),
        (matching(move_scores, move_values, rtol=1e-5), "one R_h was changed"),
    ]


class Anything(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
