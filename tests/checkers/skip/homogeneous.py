"""Answers to homogeneous-exercise-code."""

import numpy as np
import torch


def tested(factors, guess=2.0, rtol=1e-9, atol=0.0, digits=15, rows=slice(None)):
    """The degree by the sizes at 1 and ``guess``, tested at the factors."""

    def answer(f, x):
        x = x[rows]
        k = round(float((f(guess * x).norm() / f(x).norm()).log() / np.log(guess)), digits)
        return k if all(torch.allclose(f(t * x), t**k * f(x), rtol, atol) for t in factors) else None

    return answer


def right(page):
    def by_regression(f, x):
        factors = torch.tensor([0.2, 0.7, 1.9, 4.3, 11.0])
        sizes = torch.stack([f(t * x).norm() for t in factors])
        k, _ = np.polyfit(factors.log().numpy(), sizes.log().numpy(), 1)
        ok = all(torch.allclose(f(t * x), t**k * f(x), rtol=1e-7, atol=0) for t in factors)
        return float(k) if ok else None

    def by_median(f, x):
        base = f(x)
        live = base.abs() > 1e-9 * base.abs().max()
        k = (f(3 * x)[live] / base[live]).abs().log().median() / np.log(3)
        for t in (0.4, 1.3, 2.7, 7.1):
            if not torch.allclose(f(t * x), t**k * base, rtol=1e-8, atol=0):
                return None
        return k

    def by_rows(f, x):
        degrees = set()
        for row in x.split(1):
            sizes = [float(f(t * row).norm()) for t in (1, 2, 3)]
            if sizes[0]:
                same = [t ** np.log2(sizes[1] / sizes[0]) * f(row) - f(t * row) for t in (0.1, 3, 7)]
                if max(float(gap.norm()) for gap in same) > 1e-7 * sizes[2]:
                    return None
                degrees.add(round(np.log2(sizes[1] / sizes[0]), 9))
        return np.float64(degrees.pop()) if len(degrees) == 1 else None

    return [by_regression, by_median, by_rows]


def by_rows_at_five(f, x):
    rows = [row for row in x.split(1) if f(row).any()]
    degrees = [float((f(5 * row).norm() / f(row).norm()).log() / np.log(5)) for row in rows]
    ok = all(torch.allclose(f(5 * row), 5**k * f(row), atol=0) for row, k in zip(rows, degrees))
    return degrees[0] if ok and max(degrees) - min(degrees) < 1e-9 else None


def sizes_only(f, x):
    k = tested(())(f, x)
    ok = all(abs(float(f(t * x).norm() / f(x).norm()) - t**k) < 1e-9 for t in (0.3, 1.7, 5.0))
    return k if ok else None


def zero_is_none(f, x):
    k = tested((0.3, 1.7))(f, x)
    return k if k and k > 1e-9 else None


def wrong(page):
    several = 0.3, 1.7, 5.0
    return [
        (lambda f, x: None, "not 1"),
        (lambda f, x: 1, "you returned 1"),
        (lambda f, x: float("nan"), "nan"),
        (lambda f, x: "one", "a ReLU block"),
        (lambda f, x: [1.0], "a ReLU block"),
        (lambda f, x: (f(2 * x) / f(x)).log2(), "a ReLU block"),
        (tested((3,), guess=3), "powers λ of 3"),
        (tested((0.5, 2, 4)), "powers λ of"),
        (tested((3,), guess=3, rows=slice(9)), "powers λ of 3"),
        (by_rows_at_five, "powers λ of 5"),
        (tested(several, rows=slice(2, 3)), "x₁ > 0"),
        (tested(()), "a GELU block"),
        (tested(several, digits=None), "ReLU to the 4/3"),
        (tested(several, digits=1), "ReLU to the 4/3"),
        (tested(several, rtol=1e-5, atol=1e-8), "1e-12 times a GELU block"),
        (tested(several, rtol=1e-2), "x + x|x|"),
        (sizes_only, "x for ‖x‖"),
        (zero_is_none, "a normalisation"),
    ]
