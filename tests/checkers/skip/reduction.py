"""Answers to reduction-exercise-reduce."""

import numpy as np
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

    def in_place(up, down, M):
        return None if by_rank(M) else (up, down.copy_(torch.linalg.solve(M, down)))

    def by_numpy(up, down, M):
        s = np.linalg.svd(M.numpy(), compute_uv=False)
        return None if s[-1] < 1e-13 * s[0] else (up.numpy(), np.linalg.solve(M.numpy(), down.numpy()))

    return [
        reduced(by_condition),
        in_place,
        by_numpy,
        in_a_list,
        reduced(by_rank, lambda M, down: torch.linalg.lstsq(M, down)[0]),
    ]


def wrong(page):
    def nothing_left(up, down, M):  # changes what it is compared with
        return None if by_rank(M) else (up, down.zero_())

    def no_skip_left(up, down, M):
        return None if by_rank(M) else (up, down, M.copy_(torch.eye(len(M))))[:2]

    def if_inverted(up, down, M):
        try:
            return up, torch.linalg.inv(M) @ down
        except torch.linalg.LinAlgError:
            return None

    return [
        (nothing_left, "is not Mx + B(x)"),
        (no_skip_left, "is not Mx + B(x)"),
        (if_inverted, "is singular"),
        (reduced(lambda M: abs(np.linalg.det(M / M.norm())) < 1e-14), "is invertible"),
        (lambda up, down, M: None, "is invertible"),
        (lambda up, down, M: (up, down), "is not Mx + B(x)"),
        (reduced(lambda M: torch.linalg.det(M) == 0), "is singular"),
        (reduced(lambda M: torch.linalg.det(M).abs() < 1e-12), "is invertible"),
        (reduced(lambda M: torch.linalg.svdvals(M)[-1] < 1e-12), "is singular"),
        (reduced(lambda M: torch.linalg.cond(M) > 1e6), "is invertible"),
        (reduced(by_rank, lambda M, down: M @ down), "is not Mx + B(x)"),
        (reduced(by_rank, lambda M, down: torch.linalg.solve(M.T, down)), "a nonsymmetric matrix"),
        (reduced(by_rank, lambda M, down: down * torch.nan), "not finite"),
        (reduced(by_rank, lambda M, down: torch.linalg.pinv(M, rcond=1e-5) @ down), "diag(1, 0.01"),
        (lambda up, down, M: down, "the pair (up, down)"),
        (lambda up, down, M: False, "the pair (up, down)"),
        (lambda up, down, M: float("nan"), "the pair (up, down)"),
    ]
