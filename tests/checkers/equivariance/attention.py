"""Answers to attention-exercise-match."""

import torch


def matching(move_scores, move_values, *, scores_count=True, values_count=True):
    def answer(scores, values, g):
        moved = move_scores(scores, g), move_values(values, g)
        partners = []
        for M, R in zip(*moved):
            found = [
                h
                for h in range(len(scores))
                if (not scores_count or (M - scores[h]).abs().max() < 1e-8)
                and (not values_count or (R - values[h]).abs().max() < 1e-8)
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
    ]
