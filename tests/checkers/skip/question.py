"""Answers to question-exercise-degenerate."""

import numpy as np
import torch


def rules(*order, collinear=None):
    """The rules in this order."""

    def by_minors(up, down):
        u = up / up.norm(dim=1, keepdim=True)
        return any(
            float((torch.outer(u[i], u[j]) - torch.outer(u[j], u[i])).abs().max()) < 1e-12
            for i in range(len(u))
            for j in range(i)
        )

    tests = {
        "zero row": lambda up, down: bool((up == 0).all(1).any()),
        "zero column": lambda up, down: bool((down == 0).all(0).any()),
        "collinear rows": collinear or by_minors,
    }
    return lambda up, down: next((name for name in order if tests[name](up, down)), None)


ORDER = "zero row", "zero column", "collinear rows"


def right(page):
    def by_rank(up, down):
        up = (up / up.norm(dim=1, keepdim=True)).numpy()
        pairs = [(i, j) for i in range(len(up)) for j in range(i)]
        return any(np.linalg.svd(up[[i, j]])[1][-1] < 1e-9 for i, j in pairs)

    return [rules(*ORDER), rules(*ORDER, collinear=by_rank)]


def wrong(page):
    def exact(up, down):
        return any(
            torch.equal(torch.outer(up[i], up[j]), torch.outer(up[j], up[i]))
            for i in range(len(up))
            for j in range(i)
        )

    def loose(up, down):
        u = up / up.norm(dim=1, keepdim=True)
        return bool(((u @ u.T).abs() - torch.eye(len(u)) > 1 - 1e-6).any())

    def absolute(up, down):
        products = (up @ up.T).abs()
        lengths = torch.outer(up.norm(dim=1), up.norm(dim=1))
        return bool((lengths - products + torch.eye(len(up)) < 1e-12).any())

    def same_side(up, down):
        u = up / up.norm(dim=1, keepdim=True)
        return bool((u @ u.T - torch.eye(len(u)) > 1 - 1e-12).any())

    class Anything(str):
        __eq__ = lambda self, other: True
        __ne__ = lambda self, other: False
        __hash__ = str.__hash__

    return [
        (lambda up, down: None, "a zero row"),
        (rules("zero column", *ORDER), "a zero row, a zero column"),
        (rules("collinear rows", *ORDER), "a zero column, collinear rows"),
        (rules("zero row", "collinear rows", "zero column"), "a zero column, collinear rows"),
        (rules(*ORDER, collinear=exact), "row (-1e6/7"),
        (rules(*ORDER, collinear=loose), "(1,0.30001)"),
        (rules(*ORDER, collinear=absolute), "1e-20"),
        (rules(*ORDER, collinear=same_side), "-3e5/7"),
        (lambda up, down: Anything("zero row"), "1e-20"),
    ]
