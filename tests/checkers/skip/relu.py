"""Answers to relu-exercise-decide."""

import numpy as np
import torch
from scipy.optimize import lsq_linear


def right(page):
    def by_bounded_least_squares(up, down):
        matrices = torch.stack([torch.outer(down[:, i], up[i]).flatten() for i in range(len(up))], 1)
        chi = lsq_linear(matrices.numpy(), -torch.eye(up.shape[1]).flatten().numpy(), (0, 1), tol=1e-14).x
        S = [int(i) for i in (chi > 0.5).nonzero()[0]]
        near = (down[:, S] @ up[S] + torch.eye(up.shape[1])).abs().max() < 1e-7
        return S if near else None

    def by_pseudoinverse(up, down):
        matrices = torch.einsum("di,ie->dei", down, up).flatten(0, 1)
        chi = torch.linalg.pinv(matrices) @ -torch.eye(up.shape[1]).flatten()
        near = (matrices @ chi.round() + torch.eye(up.shape[1]).flatten()).norm() < 1e-8
        return torch.where(chi.round() == 1)[0].tolist() if near else None

    def whole_numbers_of_numpy(up, down):
        S = by_pseudoinverse(up, down)
        return None if S is None else np.array(S)

    return [by_bounded_least_squares, by_pseudoinverse, whole_numbers_of_numpy]


def wrong(page):
    def coefficients(up, down):
        matrices = torch.einsum("di,ie->dei", down, up).flatten(0, 1)
        return torch.linalg.pinv(matrices) @ -torch.eye(up.shape[1]).flatten()

    def never(up, down):
        return None

    def always(up, down):
        return (coefficients(up, down) > 0.5).nonzero().flatten().tolist()

    def whole_coefficients_are_enough(up, down):
        chi = coefficients(up, down)
        return always(up, down) if torch.allclose(chi, chi.round(), atol=1e-9) else None

    def plus_identity(up, down):
        chi = -coefficients(up, down)
        return chi.round().nonzero().flatten().tolist() if chi.min() > -0.1 else None

    def by(works):
        def rounded(up, down):
            S = always(up, down)
            return S if works(down[:, S] @ up[S], len(up[0])) else None

        return rounded

    def indicator(up, down):
        chi = coefficients(up, down) > 0.5
        return chi.numpy()

    def from_one(up, down):
        return [i + 1 for i in always(up, down)]

    return [
        (by(lambda P, d: abs(P.trace() + d) < 1e-9), "off the diagonal"),
        (by(lambda P, d: abs(torch.det(-P) - 1) < 1e-9), "off the diagonal"),
        (by(lambda P, d: torch.allclose(P.diagonal(), -torch.ones(d))), "off the diagonal"),
        (by(lambda P, d: (P + torch.eye(d)).abs().max() < 1e-3), "moved by 1e-4"),
        (by(lambda P, d: torch.linalg.matrix_rank(P) == d), "moved by 1e-4"),
        (indicator, "0-based"),
        (from_one, "0-based"),
        (lambda up, down: 3, "you gave 3"),
        (lambda up, down: float("nan"), "you gave nan"),
        (never, "you gave None"),
        (always, "moved by 1e-4"),
        (whole_coefficients_are_enough, "(1,0), (1,1)"),
        (plus_identity, "you gave None"),
    ]
