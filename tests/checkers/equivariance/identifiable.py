"""Answers to identifiable-exercise-pole."""

import numpy as np


def residue(f, pole, radius, count):
    step = radius * np.exp(2j * np.pi * np.arange(count) / count)
    return (f(pole + step)[:, 0] * step).mean().real


def right(page):
    def by_a_larger_circle(f, pole):
        slope = np.pi / 2 / pole.imag
        return slope, -(slope * pole).real, slope * residue(f, pole, 0.04, 200)

    def by_a_limit(f, pole):
        """Richardson's extrapolation of z f(t + z), from both sides."""
        slope = np.pi / (2 * pole.imag)
        near = lambda h: (h * (f(pole + np.array([h])) - f(pole - np.array([h])))[0, 0] / 2).real
        value = (4 * near(1e-3) - near(2e-3)) / 3
        return [slope, -slope * pole.real, slope * value]

    return [by_a_larger_circle, by_a_limit]


def wrong(page):
    def read(slope=1.0, offset=1.0, weight=1.0, radius=0.02):
        def answer(f, pole):
            true = np.pi / (2 * pole.imag)
            found = true * residue(f, pole, radius, 64)
            return slope * true, offset * -true * pole.real, weight * found

        return answer

    return [
        (lambda f, pole: (None, None, None), "the slope"),
        (lambda f, pole: (np.nan, np.nan, np.nan), "the slope"),
        (read(slope=2), "the slope"),
        (read(offset=-1), "the offset"),
        (read(weight=-1), "the outgoing weight"),
        (lambda f, pole: (*read()(f, pole)[:2], residue(f, pole, 0.02, 64)), "the outgoing weight"),
        (lambda f, pole: (*read()(f, pole)[:2], np.nan), "the outgoing weight"),
        (read(radius=0.9), "the outgoing weight"),
    ]
