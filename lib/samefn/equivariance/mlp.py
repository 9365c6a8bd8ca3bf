"""How near a layer comes to equivariance with any permutation of its units, and the matrices that pass
through ReLU.
"""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..arguments import Natural
from ..networks import DeepMLP
from .groups import Representation


def closest_permutation(network: DeepMLP, rho: Representation, x: Float[Tensor, "batch n"]) -> float:
    """How near layer 1 comes to equivariance with any permutation of its units, each with its best scale.

    The smallest relative error of f_1(ρ(g)x) against ρ_1 f_1(x) for the last element g, over all n!
    permutations.

    >>> from samefn.draw import Draw
    >>> from samefn.equivariance.groups import cyclic
    >>> from samefn.equivariance.mlp import closest_permutation
    >>> from samefn.equivariance.planted import opposite_pairs
    >>> network, mirror = opposite_pairs("gelu", generator=Draw(0))
    >>> closest_permutation(network, mirror, Draw(1).normal(50, 2)) > 0.1
    True
    """
    before, after = network.layer(1, x), network.layer(1, x @ rho.matrices[-1].T)
    size = (before**2).sum(0).clamp_min(torch.finfo(x.dtype).tiny)  # a unit may be 0 on all of x
    scale = (after.T @ before / size).clamp(min=0)  # best factor of unit j as image of unit i
    errors = (after.T[:, None] - scale[:, :, None] * before.T[None]).square().sum(2)
    orders = torch.tensor(list(itertools.permutations(range(len(errors)))))
    least = errors[torch.arange(len(errors)), orders].sum(1).min()
    return float((least / after.square().sum()).sqrt())


def invertible_integer_matrices(n: Literal[2, 3], largest: Natural) -> np.ndarray:
    """All invertible n×n matrices with entries −1, …, ``largest``, shape (count, n, n), for n = 2 or 3.

    The determinant is written out, in integers.

    >>> from samefn.equivariance.mlp import invertible_integer_matrices
    >>> invertible_integer_matrices(2, largest=1).shape  # of 3⁴ = 81
    (48, 2, 2)
    """
    matrices = np.array(list(itertools.product(range(-1, largest + 1), repeat=n * n))).reshape(-1, n, n)
    if n == 2:
        determinant = matrices[:, 0, 0] * matrices[:, 1, 1] - matrices[:, 0, 1] * matrices[:, 1, 0]
    else:
        determinant = (matrices[:, 0] * np.cross(matrices[:, 1], matrices[:, 2])).sum(1)
    return matrices[determinant != 0]
