"""Answers to mlp-exercise-match."""

import itertools

import torch


def nearest(W, R, *, signs=(1.0, -1.0), verify=True, transposed=False):
    Q = torch.zeros(len(W), len(W))
    for i, row in enumerate(W @ R):
        at = min(itertools.product(range(len(W)), signs), key=lambda a: float((a[1] * W[a[0]] - row).norm()))
        Q[i, at[0]] = at[1]
    good = torch.allclose(Q @ W, W @ R, rtol=0, atol=1e-9)
    Q = Q.T if transposed else Q
    return Q if good or not verify else None


def right(page):
    def greedy(W, R):
        free, Q = set(range(len(W))), torch.zeros(len(W), len(W))
        for i, row in enumerate(W @ R):
            for j in free:
                for sign in (1, -1):
                    if (sign * W[j] - row).abs().max() < 1e-9:
                        Q[i, j] = sign
            free -= {int(Q[i].abs().argmax())} if Q[i].any() else set()
        return Q if Q.abs().sum() == len(W) else None

    return [nearest, greedy]


def wrong(page):
    def first_within(tolerance):
        def answer(W, R):
            Q = torch.zeros(len(W), len(W))
            for i, row in enumerate(W @ R):
                for j, sign in itertools.product(range(len(W)), (1.0, -1.0)):
                    if (sign * W[j] - row).norm() < tolerance:
                        Q[i, j] = sign
                        break
                else:
                    return None
            return Q

        return answer

    def by_least_squares(W, R):
        return W @ R @ torch.linalg.pinv(W)

    return [
        (lambda W, R: None, "returned None"),
        (lambda W, R: torch.eye(len(W)), "differs"),
        (lambda W, R: torch.full((len(W), len(W)), torch.nan), "not a signed permutation"),
        (lambda W, R: nearest(W, R, verify=False), "shear"),
        (lambda W, R: nearest(W, R, signs=(1.0,)), "returned None"),
        (lambda W, R: nearest(W, R, transposed=True), "differs"),
        (first_within(1e-4), ""),
        (by_least_squares, "not a signed permutation"),
        (lambda W, R: nearest(W, R.T), "differs"),
    ]
