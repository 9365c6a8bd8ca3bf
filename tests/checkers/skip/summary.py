"""Answers to summary-exercise-own."""

import math

import numpy as np
import sympy
import torch

from samefn.activations import Activation


def mine(slope=0.5, function=lambda z: z / 2 + (1 + z**2).sqrt(), expression=None, name="mine"):
    expression = expression or (lambda z: z / 2 + sympy.sqrt(1 + z**2))
    return Activation(name, function, expression, odd_slope=slope)


def right(page):
    def both(z):  # for a tensor and for a symbol
        return 0.5 * z + (1 + z**2) ** 0.5

    return [
        mine(function=both, expression=both),
        mine(function=both, slope=np.float64(0.5)),
        mine(function=lambda z: 0.5 * z + torch.hypot(z, torch.ones_like(z)), name="other"),
        mine(expression=lambda z: (z + sympy.sqrt(4 + 4 * z**2)) / 2),
    ]


def wrong(page):
    return [
        (Activation("mine", torch.tanh, sympy.tanh), "torch function"),
        (mine(slope=1.0), "odd_slope"),
        (mine(slope=None), "odd_slope"),
        (mine(slope=-0.5), "odd_slope"),
        (mine(function=lambda z: z / 2 + (1 + z**2)), "torch function"),
        (mine(expression=lambda z: z / 2 + sympy.sqrt(1 + z)), "SymPy expression"),
        (mine(function=lambda z: z / 2 + (1 + z**2).sqrt() + torch.relu(z - 3)), "torch function"),
        (mine(function=lambda z: z / 2 + math.sqrt(1 + z**2)), "torch function fails"),
        (mine(function=lambda z: None), "torch function fails"),
        (mine(function=lambda z: z / 2 + (1 + z**2).sqrt() + torch.nan), "torch function"),
        (mine(expression=lambda z: z / 2 + torch.sqrt(1 + z**2)), "SymPy expression fails"),
        (mine(expression=lambda z: 0.5 * z + (1 + z**2) ** 0.49), "SymPy expression differs"),
        (mine(expression=lambda z: sympy.sqrt(1 + z**2)), "SymPy expression differs"),
        ("softplus", "an Activation"),
        (None, "an Activation"),
    ]
