"""Answers to heads-exercise-predict."""

import torch


def right(page):
    def by_least_squares(E, sigma, p):
        T = torch.linalg.lstsq(E.T, E[:, sigma].T).solution.T  # T E = E S
        return torch.einsum("ij,tj->ti", T, p)

    def by_normal_equations(E, sigma, p):
        S = torch.eye(E.shape[1])[:, sigma]
        return p @ torch.linalg.solve(E @ E.T, E @ S.T @ E.T)

    def as_lists(E, sigma, p):
        """Columns as the chapter writes them: T = ESE⁺, T p_t for each token."""
        T = E[:, sigma] @ E.T @ torch.linalg.inv(E @ E.T)
        return [(T @ row).tolist() for row in p]

    def as_array(E, sigma, p):
        return by_least_squares(E, sigma, p).numpy()

    return [by_least_squares, by_normal_equations, as_lists, as_array]


def wrong(page):
    def by(T):
        return lambda E, sigma, p: p @ T(E, sigma).T

    pinv = torch.linalg.pinv
    return [
        (lambda E, sigma, p: None, "return a tensor of shape"),
        (lambda E, sigma, p: 0.0, "return a tensor of shape"),
        (lambda E, sigma, p: "Tp", "return a tensor of shape"),
        (lambda E, sigma, p: p.T, "return a tensor of shape"),
        (lambda E, sigma, p: p.flip(0), "not those of the mirror"),
        (lambda E, sigma, p: p @ E[:, sigma] @ pinv(E), "not those of the mirror"),
        (lambda E, sigma, p: (E @ (pinv(E) @ p.T).flip(0)).T, "not those of the mirror"),
        (lambda E, sigma, p: p, "not those of the mirror"),
        (lambda E, sigma, p: p * torch.nan, "not those of the mirror"),
        (by(lambda E, sigma: E[:, sigma] @ E.T), "Is E orthogonal"),
        (by(lambda E, sigma: (E[:, sigma] @ pinv(E)).T), "not those of the mirror"),
        (by(lambda E, sigma: torch.eye(len(E))), "not those of the mirror"),
        (by(lambda E, sigma: -E[:, sigma] @ pinv(E)), "not those of the mirror"),
        (lambda E, sigma, p: (p @ (E[:, sigma] @ pinv(E)).T)[:1], "return a tensor of shape"),
    ]
