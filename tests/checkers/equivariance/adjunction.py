"""Answers to adjunction-exercise-code."""

import torch


def right(page):
    def by_solve(query, key, value, output, g):
        back = lambda W: torch.linalg.solve(g.T, W.mT).mT
        return back(query), back(key), back(value), torch.einsum("ij,hjk->hik", g, output)

    def on_one_side(query, key, value, output, g):
        """Only the products M_h and R_h matter."""
        inverse = torch.linalg.inv(g)
        return query @ inverse * 2, key @ inverse / 2, value @ inverse, g @ output

    return [by_solve, on_one_side]


def wrong(page):
    def moving(into, out):
        def answer(query, key, value, output, g):
            return query @ into(g), key @ into(g), value @ into(g), out(g) @ output

        return answer

    same, inverse, back = lambda g: g, torch.linalg.inv, lambda g: g.T

    def values_forgotten(query, key, value, output, g):
        return query @ inverse(g), key @ inverse(g), value, g @ output

    def queries_only(query, key, value, output, g):
        return query @ inverse(g), key, value @ inverse(g), g @ output

    return [
        (lambda query, key, value, output, g: (query, key, value, output), "a turn"),
        (moving(back, same), "a shear"),
        (moving(same, same), "a turn"),
        (moving(inverse, inverse), "a turn"),
        (moving(inverse, lambda g: inverse(g).T), "a shear"),
        (values_forgotten, "a turn"),
        (queries_only, "a turn"),
    ]
