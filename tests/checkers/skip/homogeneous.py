"""Answers to homogeneous-exercise-code."""

import numpy as np
import torch


def right(page):
    def by_regression(f, x):
        factors = torch.tensor([0.2, 0.7, 1.9, 4.3, 11.0])
        sizes = torch.stack([f(t * x).norm() for t in factors])
        k, _ = np.polyfit(factors.log().numpy(), sizes.log().numpy(), 1)
        ok = all(torch.allclose(f(t * x), t**k * f(x), rtol=1e-7, atol=1e-9) for t in factors)
        return float(k) if ok else None

    def by_median(f, x):
        base = f(x)
        live = base.abs() > 1e-12
        k = (f(3 * x)[live] / base[live]).abs().log().median() / np.log(3)
        for t in (0.4, 1.3, 2.7, 7.1):
            if not torch.allclose(f(t * x), t**k * base, rtol=1e-8, atol=1e-10):
                return None
        return k

    return [by_regression, by_median]


def wrong(page):
    def at_three(f, x):
        k = float((f(3 * x).norm() / f(x).norm()).log() / np.log(3))
        return k if torch.allclose(f(3 * x), 3**k * f(x), atol=1e-9) else None

    def at_powers_of_two(f, x):
        k = float((f(2 * x).norm() / f(x).norm()).log2())
        return k if all(torch.allclose(f(t * x), t**k * f(x), atol=1e-9) for t in (0.5, 2, 4)) else None

    def by_first_point(f, x):
        y, z = f(x[:1]).norm(), f(2 * x[:1]).norm()
        k = float((z / y).log2())
        ok = all(torch.allclose(f(t * x[:1]), t**k * f(x[:1]), atol=1e-9) for t in (0.3, 1.7))
        return k if ok else None

    def unchecked(f, x):
        return float((f(2 * x).norm() / f(x).norm()).log2())

    def rounded(f, x):
        k = round(unchecked(f, x))
        ok = all(torch.allclose(f(t * x), t**k * f(x), atol=1e-9) for t in (0.3, 1.7))
        return k if ok else None

    def sizes_only(f, x):
        k = unchecked(f, x)
        ok = all(abs(float(f(t * x).norm() / f(x).norm()) - t**k) < 1e-9 for t in (0.3, 1.7, 5.0))
        return k if ok else None

    return [
        (lambda f, x: None, "not 1"),
        (lambda f, x: 1, "you returned 1"),
        (lambda f, x: float("nan"), "nan"),
        (at_three, "powers λ of 3"),
        (at_powers_of_two, "powers λ of"),
        (by_first_point, ""),
        (unchecked, "a GELU block"),
        (rounded, "ReLU to the 1.3"),
        (sizes_only, ""),
    ]
