"""Blocks of every kind that has a criterion, and the oracle: all 2^m sets, tried one by one."""

import itertools
from fractions import Fraction

import numpy as np
import torch

from samefn import activations
from samefn.draw import Draw
from samefn.networks import MLP, GatedMLP, Residual
from samefn.skip.absorption import absorb
from samefn.skip.criterion import Criterion, ldexp, normalised
from samefn.skip.planted import plant

ODD_LINEAR = ["relu", "leaky_relu", "gelu", "gelu_tanh", "silu", "softplus", "logsigmoid", "hardswish"]
KINDS = [*ODD_LINEAR, "leaky_relu(-3)", "softplus(4)", "up bias", "both biases", "down bias", "sigmoid gate"]


def normal(*shape: int, seed: int) -> torch.Tensor:
    return Draw(seed).normal(*shape)


def random_block(kind: str, d: int, m: int, seed: int) -> MLP | GatedMLP:
    up, down = normal(m, d, seed=seed), normal(d, m, seed=seed + 1000)
    up_bias, down_bias = normal(m, seed=seed + 2000), normal(d, seed=seed + 3000)
    match kind:
        case "up bias":
            return MLP(up, down, "gelu", up_bias)
        case "both biases":
            return MLP(up, down, "relu", up_bias, down_bias)
        case "down bias":
            return MLP(up, down, "silu", None, down_bias)
        case "sigmoid gate":
            return GatedMLP(normal(m, d, seed=seed + 4000), up, down, "sigmoid")
        case "leaky_relu(-3)":
            return MLP(up, down, activations.leaky_relu(-3))
        case "softplus(4)":
            return MLP(up, down, activations.softplus(4))
    return MLP(up, down, kind)


def planted(kind: str, d: int, m: int, chosen: tuple[int, ...], seed: int, skip=None) -> Residual:
    block = random_block(kind, d, m, seed)
    if isinstance(block, MLP):
        return plant(block, chosen, skip)
    down = plant(MLP(block.up, block.down, "relu"), chosen, skip).block.down  # the same criterion, 2c = 1
    return Residual(GatedMLP(block.gate, block.up, down, "sigmoid"), skip)


def with_weights(residual: Residual, **weights: torch.Tensor) -> Residual:
    """The same network with some weights replaced."""
    block = residual.block
    names = ("gate", "up", "down") if isinstance(block, GatedMLP) else ("up", "down", "up_bias", "down_bias")
    given = {n: weights.get(n, getattr(block, n)) for n in names}
    given = {n: t if t is None else t.detach() for n, t in given.items()}
    return Residual(type(block)(activation=block.activation, **given), residual.skip)


def raw_criterion(slope: float, down: torch.Tensor, up: torch.Tensor, target: torch.Tensor) -> Criterion:
    """The criterion A + 2c Σ a_i u_iᵀ = 0 of numbers that belong to no block."""
    return normalised(torch.full((len(up),), 2 * slope), down, up, target)


def unscaled(criterion: Criterion, slope: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The columns a_i, the rows u_i and A of a criterion."""
    down = ldexp(criterion.down, criterion.exponent - criterion.shift) / (2 * slope)
    up = ldexp(criterion.up, criterion.shift[:, None])
    return down, up, ldexp(criterion.target, criterion.exponent)


def rank_one_matrices(residual: Residual) -> tuple[np.ndarray, np.ndarray]:
    """2c a_i u_iᵀ as rows, and A; biases as a last column where they have no output bias to go to."""
    block = residual.block
    slope = 0.5 if isinstance(block, GatedMLP) else block.activation.odd_slope
    up, skip = block.up.detach().numpy(), residual.skip_matrix().detach().numpy()
    if isinstance(block, MLP) and block.up_bias is not None and block.down_bias is None:
        up = np.c_[up, block.up_bias.detach().numpy()]
        skip = np.c_[skip, np.zeros(len(skip))]
    matrices = [2 * slope * np.outer(a, u) for a, u in zip(block.down.detach().numpy().T, up)]
    return np.array([matrix.ravel() for matrix in matrices]), skip.ravel()


def distances(residual: Residual) -> np.ndarray:
    """‖A + 2c P_S‖_F for all 2^m sets S."""
    matrices, skip = rank_one_matrices(residual)
    sets = (np.arange(2 ** len(matrices))[:, None] >> np.arange(len(matrices))) & 1
    return np.linalg.norm(skip + sets @ matrices, axis=1)


def exact_squared_distance(residual: Residual) -> Fraction:
    """min over S of ‖A + 2c P_S‖_F², without rounding; for 2c = 1."""
    block = residual.block
    up, down, skip = (
        [[Fraction(x) for x in row] for row in t.tolist()]
        for t in (block.up, block.down, residual.skip_matrix())
    )
    best = None
    for flips in itertools.product((0, 1), repeat=block.width):
        chosen = [i for i, flipped in enumerate(flips) if flipped]
        entries = itertools.product(range(len(skip)), repeat=2)
        total = sum((skip[r][c] + sum(down[r][i] * up[i][c] for i in chosen)) ** 2 for r, c in entries)
        best = total if best is None else min(best, total)
    return best


def unimodular(d: int, m: int, seed: int) -> Residual:
    """Integer weights that satisfy P_S = -I exactly for S = {0, .., d - 1}."""
    draw = Draw(seed)
    lower = torch.randint(-2, 3, (d, d), generator=draw).double().tril(-1) + torch.eye(d)
    upper = torch.randint(-2, 3, (d, d), generator=draw).double().triu(1) + torch.eye(d)
    rows = lower @ upper
    extra = torch.randint(3, 9, (m - d, d), generator=draw).double() + 10 * torch.arange(m - d)[:, None]
    up = torch.cat([rows, extra])
    down = torch.cat(
        [-torch.linalg.inv(rows).round(), torch.randint(1, 5, (d, m - d), generator=draw).double()], 1
    )
    return Residual(MLP(up, down, "gelu"))


def assert_same_function(residual: Residual, network: torch.nn.Module, tolerance: float = 1e-9) -> None:
    x = 3 * normal(200, residual.dim_in, seed=77)
    block = residual.block
    terms = float((block.down.norm(dim=0) * block.up.norm(dim=1)).sum() + residual.skip_matrix().norm())
    assert float((network(x) - residual(x)).abs().max()) <= tolerance * terms * float(x.norm(dim=1).max())


def assert_absorbs(residual: Residual, flipped: tuple[int, ...] | None = None) -> None:
    answer = absorb(residual)
    assert answer.absorbed is True, answer
    assert 0 <= answer.error <= 2.0**-40
    assert type(answer.network) is type(residual.block) and answer.network.width == residual.block.width
    assert answer.network.activation is residual.block.activation
    if isinstance(residual.block, MLP):
        for bias in ("up_bias", "down_bias"):
            assert (getattr(answer.network, bias) is None) is (getattr(residual.block, bias) is None)
    assert_same_function(residual, answer.network)
    if flipped is not None:
        assert answer.flipped == flipped


def assert_refuted(residual: Residual, reason: str = "submatrix") -> None:
    answer = absorb(residual)
    assert answer.absorbed is False and answer.reason == reason, answer
    assert answer.network is None and answer.flipped is None
    assert 0 < answer.margin <= distances(residual).min() * (1 + 1e-12)
