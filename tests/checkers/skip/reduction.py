"""Answers to reduction-exercise-reduce."""

import torch


def reduced(singular, solve=lambda M, down: torch.linalg.solve(M, down)):
    return lambda up, down, M: None if singular(M) else (up, solve(M, down))


def by_rank(M):
    return torch.linalg.matrix_rank(M) < len(M)


def right(page):
    def by_condition(M):
        return torch.linalg.cond(M) > 1e14

    def in_a_list(up, down, M):
        s = torch.linalg.svdvals(M)
        return None if s[-1] < 1e-14 * s[0] else [up, torch.linalg.inv(M) @ down]

    return [
        reduced(by_condition),
        in_a_list,
        reduced(by_rank, lambda M, down: torch.linalg.lstsq(M, down)[0]),
    ]


def wrong(page):
    return [
        (lambda up, down, M: None, "is invertible"),
        (lambda up, down, M: (up, down), "is not Mx + B(x)"),
        (reduced(lambda M: torch.linalg.det(M) == 0), "is singular"),
        (reduced(lambda M: torch.linalg.det(M).abs() < 1e-12), "is invertible"),
        (reduced(lambda M: torch.linalg.svdvals(M)[-1] < 1e-12), "is singular"),
        (reduced(lambda M: torch.linalg.cond(M) > 1e6), "is invertible"),
        (reduced(by_rank, lambda M, down: M @ down), "is not Mx + B(x)"),
        (reduced(by_rank, lambda M, down: torch.linalg.solve(M.T, down)), "a nonsymmetric matrix"),
        (reduced(by_rank, lambda M, down: down * torch.nan), "not finite"),
        (lambda up, down, M: down, "the pair (up, down)"),
    ]
