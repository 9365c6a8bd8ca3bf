"""Answers to equivariance-summary-exercise-kind."""

import torch


def admitting(*, points=None, sign=True, nonzero=True, factors=(-1, 2, -2), own_factor=False):
    def answer(sigma):
        x = torch.linspace(-4, 4, 80) if points is None else torch.tensor(points)
        found = set()
        for factor in factors:
            at = int(sigma(x).abs().argmax())
            ratio = sigma(factor * x)[at] / sigma(x)[at]
            ratio = torch.tensor(float(factor)) if own_factor else ratio
            fits = torch.allclose(sigma(factor * x), ratio * sigma(x), rtol=0, atol=1e-9)
            if fits and (ratio != 0 or not nonzero) and (not sign or (ratio > 0) == (factor > 0)):
                found.add(factor)
        return found

    return answer


def right(page):
    whole = admitting()

    def by_rank(sigma):
        """σ(λz) and σ(z) as two rows of rank one."""
        x, found = torch.linspace(-9, 9, 61), []
        for factor in (-1, 2, -2):
            rows = torch.stack([sigma(factor * x), sigma(x)])
            live = sigma(x).abs() > 1e-3
            ratio = (rows[0] / rows[1])[live]
            ok = torch.linalg.matrix_rank(rows, rtol=1e-9) == 1 and (ratio * factor > 0).all()
            found += [factor] * bool(ok)
        return frozenset(found)

    return [whole, by_rank]


def wrong(page):
    return [
        (lambda sigma: set(), "you returned set()"),
        (lambda sigma: {-1, 2, -2}, "you returned"),
        (lambda sigma: {-1}, "you returned"),
        (admitting(points=[1.0]), "you returned"),
        (admitting(points=[0.5, 1.0, 2.0]), "you returned"),
        (admitting(sign=False), "you returned"),
        (admitting(factors=(-1, 2)), "you returned"),
        (admitting(own_factor=True), "you returned"),
    ]
