"""Answers to depth-exercise-gap."""

import numpy as np
import torch


def right(page):
    def by_jacobian(f, d):
        J = torch.autograd.functional.jacobian(lambda x: f(x[None])[0], torch.zeros(d))
        return torch.allclose(J, torch.eye(d))

    def by_trace(f, d):
        h = 1e-80
        return np.trace((f(h * torch.eye(d)) / h).numpy()) > d / 2  # NumPy's bool

    def by_doubling(f, d):  # PyTorch's bool
        x = 1e-60 * torch.ones(1, d)
        return (f(2 * x) < 3 * x).all() & (f(x) != 0).all() & (f(x) > x / 2).all()

    return [by_jacobian, by_trace, by_doubling]


def wrong(page):
    def near(h, threshold=0.5):
        def answer(f, d):
            x = h * torch.eye(d)
            return bool((f(x).norm(dim=1) > threshold * h).all())

        return answer

    return [
        (lambda f, d: None, "True or False, not None"),
        (lambda f, d: 1, "True or False, not 1"),
        (lambda f, d: torch.ones(d) > 0, "True or False, not tensor"),
        (lambda f, d: True, "has no skip"),
        (lambda f, d: False, "all skips are there"),
        (near(1.0), "near enough"),
        (near(1e-3), "near enough"),
        (near(1e-12), "near enough"),
        (near(1e-18), "near enough"),
        (near(1e-200), "rounded to 0"),
        (lambda f, d: torch.allclose(f(1e-50 * torch.eye(d)), 1e-50 * torch.eye(d)), "has no skip"),
        (near(1e-50, 1.5), "all skips are there"),
        (near(0.0), "all skips are there"),
        (lambda f, d: float("nan"), "nan"),
    ]
