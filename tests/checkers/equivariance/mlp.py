"""Answers to mlp-exercise-match."""

import itertools

import torch


def nearest(W, R, *, signs=(1.0, -1.0), verify=True, transposed=False, rtol=0.0, atol=1e-9):
    Q = torch.zeros(len(W), len(W))
    for i, row in enumerate(W @ R):
        at = min(itertools.product(range(len(W)), signs), key=lambda a: float((a[1] * W[a[0]] - row).norm()))
        Q[i, at[0]] = at[1]
    good = torch.allclose(Q @ W, W @ R, rtol=rtol, atol=atol)
    Q = Q.T if transposed else Q
    return Q if good or not verify else None


def greedy(W, R):
    free, Q = set(range(len(W))), torch.zeros(len(W), len(W))
    for i, row in enumerate(W @ R):
        for j in free:
            for sign in (1, -1):
                if (sign * W[j] - row).abs().max() < 1e-9:
                    Q[i, j] = sign
        free -= {int(Q[i].abs().argmax())} if Q[i].any() else set()
    return Q if Q.abs().sum() == len(W) else None


def right(page):
    def whole_numbers(W, R):
        Q = nearest(W, R)
        return None if Q is None else Q.numpy().astype(int)

    def by_trying(W, R):
        """All signed permutations, as lists."""
        for order in itertools.permutations(range(len(W))):
            for signs in itertools.product((1, -1), repeat=len(W)):
                Q = [[s * (j == k) for j in range(len(W))] for s, k in zip(signs, order)]
                if (torch.tensor(Q, dtype=W.dtype) @ W - W @ R).abs().max() < 1e-9:
                    return Q

    return [nearest, greedy, whole_numbers, by_trying]


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

    def if_orthogonal(W, R):
        return nearest(W, R) if torch.allclose(R @ R.T, torch.eye(2)) else None

    def by_angles(W, R):
        """The most parallel row, whatever its length."""
        angles = torch.nn.functional.normalize(W @ R) @ torch.nn.functional.normalize(W).T
        at = angles.abs().argmax(1, keepdim=True)
        return torch.zeros_like(angles).scatter(1, at, angles.gather(1, at).sign())

    def by_equation(W, R):
        """Least squares, rounded."""
        return (W @ R @ torch.linalg.pinv(W)).round()

    return [
        (lambda W, R: None, "returned None"),
        (lambda W, R: 1, "not a signed permutation"),
        (lambda W, R: "Q", "return a matrix or None"),
        (lambda W, R: torch.eye(2), "not a signed permutation"),
        (lambda W, R: nearest(W, R, rtol=1e-5, atol=1e-8), "differs from WR by more than 1e-9"),
        (lambda W, R: nearest(W, R, atol=1e-5), "differs from WR by more than 1e-9"),
        (first_within(1e-7), "not a signed permutation"),
        (if_orthogonal, "not orthogonal"),
        (by_angles, "differs"),
        (by_equation, "not a signed permutation"),
        (lambda W, R: torch.eye(len(W)), "differs"),
        (lambda W, R: torch.full((len(W), len(W)), torch.nan), "not a signed permutation"),
        (lambda W, R: nearest(W, R, verify=False), "shear"),
        (lambda W, R: nearest(W, R, signs=(1.0,)), "returned None"),
        (lambda W, R: nearest(W, R, transposed=True), "differs"),
        (first_within(1e-4), ""),
        (by_least_squares, "not a signed permutation"),
        (lambda W, R: nearest(W, R.T), "differs"),
    ]
