"""Answers to question-exercise-degenerate."""

import numpy as np
import torch


def rules(*order, **tests):
    """The rules in this order."""

    def by_minors(up, down):
        u = up / up.norm(dim=1, keepdim=True)
        return any(
            float((torch.outer(u[i], u[j]) - torch.outer(u[j], u[i])).abs().max()) < 1e-12
            for i in range(len(u))
            for j in range(i)
        )

    tests = {
        "zero row": tests.get("row") or (lambda up, down: bool((up == 0).all(1).any())),
        "zero column": tests.get("column") or (lambda up, down: bool((down == 0).all(0).any())),
        "collinear rows": tests.get("collinear") or by_minors,
    }
    return lambda up, down: next((name for name in order if tests[name](up, down)), None)


ORDER = "zero row", "zero column", "collinear rows"


def right(page):
    def by_rank(up, down):
        up = (up / up.norm(dim=1, keepdim=True)).numpy()
        pairs = [(i, j) for i in range(len(up)) for j in range(i)]
        return any(np.linalg.svd(up[[i, j]])[1][-1] < 1e-9 for i, j in pairs)

    def by_rejection(up, down):
        u = (up / up.norm(dim=1, keepdim=True)).tolist()
        inner = lambda v, w: sum(a * b for a, b in zip(v, w))
        rest = lambda v, w: max(abs(a - inner(v, w) * b) for a, b in zip(v, w))
        return any(rest(u[i], u[j]) < 1e-10 for i in range(len(u)) for j in range(i))

    return [rules(*ORDER, collinear=c) for c in (None, by_rank, by_rejection)]


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

    def mirrored(up, down):
        u = (up / up.norm(dim=1, keepdim=True)).abs()
        return any(float((u[i] - u[j]).abs().max()) < 1e-12 for i in range(len(u)) for j in range(i))

    def in_the_plane(up, down):
        u = up / up.norm(dim=1, keepdim=True)
        minors = torch.outer(u[:, 0], u[:, 1]) - torch.outer(u[:, 1], u[:, 0])
        return bool((minors.abs() + torch.eye(len(u)) < 1e-12).any())

    def neighbours(up, down):
        u = up / up.norm(dim=1, keepdim=True)
        return bool(((u[1:] * u[:-1]).sum(1).abs() > 1 - 1e-12).any())

    class Anything(str):
        __eq__ = lambda self, other: True
        __ne__ = lambda self, other: False
        __hash__ = str.__hash__

    return [
        (lambda up, down: None, "a zero row"),
        (rules("zero column", "zero row", "collinear rows"), "a zero row, a zero column"),
        (rules("zero column", "collinear rows", "zero row"), "a zero row, a zero column"),
        (rules("collinear rows", "zero row", "zero column"), "a zero column, collinear rows"),
        (rules("collinear rows", "zero column", "zero row"), "a zero row, a zero column"),
        (rules("zero row", "collinear rows", "zero column"), "a zero column, collinear rows"),
        (rules(*ORDER, collinear=exact), "row (-1e6/7"),
        (rules(*ORDER, collinear=loose), "(1,0.30001)"),
        (rules(*ORDER, collinear=absolute), "1e-20"),
        (rules(*ORDER, collinear=same_side), "-3e5/7"),
        (rules(*ORDER, collinear=mirrored), "(1,-0.3)"),
        (rules(*ORDER, collinear=in_the_plane), "(1,0.3,1)"),
        (rules(*ORDER, collinear=neighbours), "row (-1e6/7"),
        (rules(*ORDER, row=lambda up, down: bool((up.norm(dim=1) < 1e-12).any())), "1e-20"),
        (rules(*ORDER, row=lambda up, down: bool((up.sum(1) == 0).any())), "(1,-1)"),
        (rules(*ORDER, column=lambda up, down: bool((down.norm(dim=0) < 1e-12).any())), "a tiny column"),
        (rules(*ORDER, column=lambda up, down: bool((down.sum(0) == 0).any())), "a tiny column"),
        (rules(*ORDER, column=lambda up, down: bool((down == 0).all(1).any())), "a zero column of"),
        (lambda up, down: Anything("zero row"), "1e-20"),
        (lambda up, down: float("nan"), "nan"),
        (lambda up, down: up, "1e-20"),
    ]
