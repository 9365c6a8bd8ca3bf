"""Blocks of one degree k ≠ 1: how far they stay from a skip, and the skips that biases make."""

from __future__ import annotations

import numpy as np
import scipy.optimize
import torch
from jaxtyping import Float
from torch import Tensor

from ..activations import Activation, get
from ..arguments import Count, Finite, Positive
from ..networks import MLP, Residual, checked_weights

# --- distances: the propositions of the chapter's section "But approximately?" ----------------------


def two_radii_bound(degree: Finite, r: Positive, R: Positive) -> float:
    """|rRᵏ − rᵏR|/(rᵏ + Rᵏ): no D of degree k comes closer to x at both radii r and R.

    Raises ValueError unless r < R.

    >>> from samefn.skip.homogeneous import two_radii_bound
    >>> two_radii_bound(degree=2, r=0.5, R=1.0)  # (1/2 - 1/4) / (1/4 + 1)
    0.2
    """
    if not r < R:
        raise ValueError(f"r must be less than R, got {r} and {R}")
    power = (r / R) ** degree  # no power of r or R alone, which could overflow
    return abs(r - R * power) / (1 + power)


def best_on_ray(degree: Positive) -> tuple[float, float]:
    """(μ, max |λ − μλᵏ| over 0 ≤ λ ≤ 1) for the best μ, where k = ``degree`` > 0.

    At the best μ the largest errors inside the interval and at its end balance.

    >>> from samefn.skip.homogeneous import best_on_ray
    >>> mu, error = best_on_ray(degree=2)
    >>> f"{mu:.4f} {error:.4f}"  # 2√2 - 2 and 3 - 2√2
    '1.2071 0.2071'
    """
    if degree == 1:
        return 1.0, 0.0

    def imbalance(mu: float) -> float:
        inner = (mu * degree) ** (1 / (1 - degree))  # where λ − μλᵏ is stationary
        return abs(inner * (1 - 1 / degree)) - abs(mu - 1)

    bracket = (1.0, 2.0) if degree > 1 else (1e-300, 1.0)
    mu = float(scipy.optimize.root_scalar(imbalance, bracket=bracket, xtol=1e-15).root)
    return mu, abs(mu - 1)


def disc_fit(
    activation: str | Activation, m: Count, turn: Finite = 0.0, radii: Count = 24, directions: Count = 360
) -> tuple[float, float]:
    """Least-squares fit of x on the unit disc by a block whose m rows form a regular polygon.

    Returns (relative root-mean-square error, the least such error over *all* functions of the
    activation's degree on the same grid).  ``turn`` rotates the polygon, in radians.  The grid is a
    product of directions and Gauss–Legendre radii, so that the bound for rays holds on it exactly.
    Raises ValueError unless the activation has a degree.

    >>> from samefn.skip.homogeneous import disc_fit
    >>> error, floor = disc_fit("relu_squared", m=12)
    >>> error >= floor, f"{floor:.3f}"  # |k - 1| / (k + d + 1) for k = d = 2
    (True, '0.200')
    """
    activation = get(activation)
    if activation.degree is None:
        raise ValueError(f"activation must be positively homogeneous, got {activation.name}")
    r, weight = _gauss_radii(radii)
    x = (r[:, None, None] * _circle(directions)).reshape(-1, 2)
    root = weight.sqrt().repeat_interleave(directions)[:, None]
    hidden = activation(x @ _circle(m, turn).T)
    # the units may be dependent, so: least squares by singular values
    fit = hidden @ torch.linalg.lstsq(root * hidden, root * x, driver="gelsd").solution
    return float((root * (fit - x)).norm() / (root * x).norm()), _floor(r, weight, activation.degree)


def _floor(r: Float[Tensor, "n"], weight: Float[Tensor, "n"], k: float) -> float:
    """The sine of the angle between the functions ρ and ρᵏ of the radius."""
    cosine = (weight * r ** (k + 1)).sum() / ((weight * r**2).sum() * (weight * r ** (2 * k)).sum()).sqrt()
    return float((1 - cosine**2).clamp(min=0).sqrt())


def _gauss_radii(n: int) -> tuple[Float[Tensor, "n"], Float[Tensor, "n"]]:
    """Gauss–Legendre radii in [0, 1], and their weights times the radius: area in the unit disc."""
    nodes, weights = np.polynomial.legendre.leggauss(n)
    return torch.from_numpy((nodes + 1) / 2), torch.from_numpy(weights * (nodes + 1))


def _circle(n: int, turn: float = 0.0) -> Float[Tensor, "n 2"]:
    """n unit vectors at equal angles, the first at the angle ``turn``."""
    angle = turn + torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n)
    return torch.stack([angle.cos(), angle.sin()], 1)


# --- what biases change -----------------------------------------------------------------------------


def identity_with_biases(d: Count) -> MLP:
    """x as a ReLU² block with biases, from (z+1)² − (z−1)² = 4z and σ(z) + σ(−z) = z²: 4d units, float64.

    >>> from samefn.draw import Draw
    >>> from samefn.skip.homogeneous import identity_with_biases
    >>> x = Draw(0).normal(100, 3)
    >>> torch.allclose(identity_with_biases(3)(x), x)
    True
    """
    eye, one = torch.eye(d, dtype=torch.float64), torch.ones(d, dtype=torch.float64)
    up = torch.cat([eye, -eye, eye, -eye])
    down = torch.cat([eye, eye, -eye, -eye], 1) / 4
    return MLP(up, down, "relu_squared", torch.cat([one, -one, -one, one]))


def biased_pair(basis: Float[Tensor, "d d"]) -> tuple[Residual, MLP]:
    """A ReLU² block with biases, width 2d, and a residual-free one of that width equal to x + block(x).

    The units are σ(v_k·x ± 1), v_k the rows of ``basis``.  Raises ValueError unless ``basis``
    is a finite invertible matrix.

    >>> from samefn.draw import Draw
    >>> from samefn.functions import gap
    >>> from samefn.skip.homogeneous import biased_pair
    >>> with_skip, without = biased_pair(torch.eye(2))
    >>> gap(with_skip, without, Draw(0).normal(100, 2)) < 1e-14
    True
    """
    basis = checked_weights("basis", basis).detach()
    d, rank = len(basis), int(torch.linalg.matrix_rank(basis))
    if rank < d:
        raise ValueError(f"basis must be invertible, got rank {rank} for shape {tuple(basis.shape)}")
    dual = torch.linalg.inv(basis)  # its columns b_k satisfy Σ b_k v_kᵀ = I
    up, down = torch.cat([basis, basis]), torch.cat([-dual, dual], 1) / 4
    bias = torch.cat([basis.new_ones(d), -basis.new_ones(d)])
    return Residual(MLP(up, down, "relu_squared", bias)), MLP(-up, -down, "relu_squared", -bias)
