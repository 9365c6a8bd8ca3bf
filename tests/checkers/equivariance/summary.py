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

    def by_cross_products(sigma):
        """As a list of tensors: does σ(λz)σ(w) = σ(λw)σ(z) hold, and what sign has σ(λw)σ(w)?"""
        z = torch.linspace(-8, 8, 50)
        w = z[sigma(z).abs().argmax()]
        found = []
        for factor in torch.tensor([-1.0, 2.0, -2.0]):
            cross = sigma(factor * z) * sigma(w) - sigma(factor * w) * sigma(z)
            if cross.abs().max() < 1e-9 and sigma(factor * w) * sigma(w) * factor > 0:
                found.append(factor)
        return found

    return [whole, by_rank, by_cross_products]


def wrong(page):
    def stretched(sigma):
        return {factor * 1.2 for factor in admitting()(sigma)}

    return [
        (lambda sigma: set(), "you returned set()"),
        (lambda sigma: None, "return a set of numbers"),
        (lambda sigma: 2, "return a set of numbers"),
        (lambda sigma: {"2"}, "you returned"),
        (lambda sigma: {float("nan")}, "you returned"),
        (lambda sigma: {Anything(2)}, "you returned"),
        (stretched, "you returned"),
        (admitting(points=[0.1, 0.2, 0.5, -0.1, -0.3]), "you returned"),
        (admitting(points=[-2.0, -1.0, -0.5, 0.5, 1.0, 2.0]), "you returned"),
        (admitting(points=[30.0, 40.0, -30.0, -50.0]), "you returned"),
        (admitting(nonzero=False, points=[1.0, 2.0, 3.0]), "you returned"),
        (lambda sigma: {-1, 2, -2}, "you returned"),
        (lambda sigma: {-1}, "you returned"),
        (admitting(points=[1.0]), "you returned"),
        (admitting(points=[0.5, 1.0, 2.0]), "you returned"),
        (admitting(sign=False), "you returned"),
        (admitting(factors=(-1, 2)), "you returned"),
        (admitting(own_factor=True), "you returned"),
    ]


class Anything(int):
    __eq__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = int.__hash__
