"""X-REAL: in none of the six layers of all-MiniLM-L6-v2 can the feed-forward block absorb its skip.

The weights are given; a seed only changes what they are compared with.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ... import pretrained
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual
from ...skip.absorption import Absorption, absorb
from ...skip.criterion import certified_bound
from ...skip.planted import plant
from .. import Claim, require

UNIT_ROUNDOFF = 2.0**-53

claim = Claim(
    id="X-REAL",
    title="No layer of a trained sentence encoder can absorb its skip",
    source="new; criterion [A, Theorem 10] with biases",
    hypotheses=(
        "every u_i is nonzero",
        "no two (u_i, b_i) are equal up to sign",
        "every a_i is nonzero",
        "equality is asked inside the LayerNorm, for all x in R^d or for all outputs of a LayerNorm",
    ),
    uses=(),
    chapter="beyond/transformer",
)


def margin(up: Tensor, down: Tensor, y: Tensor) -> float:
    """The lower bound of ‖I + P_S‖_F over all S that Y certifies, in plain arithmetic; negative if none.

    Independent of :mod:`samefn.skip`, so that a certificate found there is checked by other code.
    A sum of n products is off by at most nu/(1 - nu) of the sum of their sizes, u = 2^-53;
    here n = 2d + m, and Cauchy–Schwarz bounds the sizes.
    """
    m, d = up.shape
    inner = ((y.T @ down).T * up).sum(1)
    value = y.trace() + inner.clamp(max=0).sum()
    terms = (2 * d + m) * UNIT_ROUNDOFF
    sizes = d**0.5 + (down.norm(dim=0) * up.norm(dim=1)).sum()
    return float(value / y.norm() - 2 * terms * sizes)


def separation(rows: Tensor) -> float:
    """The least distance between two rows up to sign, min over i ≠ j of ‖r_i ∓ r_j‖."""
    squares = (rows**2).sum(1)
    distance = squares[:, None] + squares[None, :] - 2 * (rows @ rows.T).abs()
    return float(distance.fill_diagonal_(torch.inf).min().clamp_min(0).sqrt())


@cache
def layers() -> tuple[Residual, ...]:
    """The six blocks; read from the file once."""
    return pretrained.feed_forward()


@cache
def answers() -> tuple[Absorption, ...]:
    """What ``absorb`` says of each layer: refuted, with a certificate, or ClaimFailed."""
    found = tuple(absorb(residual) for residual in layers())
    for layer, answer in enumerate(found):
        refuted = answer.absorbed is False and answer.certificate is not None
        require(refuted, f"layer {layer} was not refuted: {answer}")
    return found


@cache
def margins() -> tuple[float, ...]:
    """The bound of ‖I + P_S‖ that the certificate of each layer proves."""
    blocks = [residual.block for residual in layers()]
    bounds = tuple(margin(b.up, b.down, a.certificate) for b, a in zip(blocks, answers(), strict=True))
    require(min(bounds) > 0, f"a certificate does not hold: bounds {bounds}")
    return bounds


def _figures(values: list[float] | tuple[float, ...], digits: int = 2) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


@claim.certificate(
    "the hypotheses hold in all six layers: least ‖(u_i,b_i) ∓ (u_j,b_j)‖, least ‖u_i‖ or ‖a_i‖"
)
def hypotheses() -> str:
    blocks = [residual.block for residual in layers()]
    apart = min(separation(torch.cat([b.up, b.up_bias[:, None]], 1)) for b in blocks)
    smallest = min(float(min(b.up.norm(dim=1).min(), b.down.norm(dim=0).min())) for b in blocks)
    require(apart > 1e-3 and smallest > 1e-3, "a trained block breaks the theorem's hypotheses")
    return f"{apart:.3f}, {smallest:.3f}"


@claim.certificate("‖I + P_S‖ is at least this for every S, layers 0 to 5")
def every_layer_is_refuted() -> str:
    return _figures(margins())


@claim.certificate("the same where inputs are LayerNorm outputs and the next LayerNorm drops the mean")
def refuted_between_layer_norms() -> str:
    bounds = []
    for residual, answer, (gain, _) in zip(layers(), answers(), pretrained.input_norms(), strict=True):
        normal = 1 / gain / (1 / gain).norm()  # of the hyperplane that holds every output of the LayerNorm
        y = answer.certificate - torch.outer(answer.certificate @ normal, normal)
        bounds.append(margin(residual.block.up, residual.block.down, y - y.mean(0)))
    require(min(bounds) > 0, f"no certificate inside and after LayerNorm: bounds {bounds}")
    return _figures(bounds)


@claim.numeric("no random S beats the bound: nearest of 8 a layer")
def random_sets(draw: Draw) -> str:
    nearest = []
    for residual in layers():
        up, down = residual.block.up, residual.block.down
        subsets = (draw.uniform(8, len(up)) < 0.3).to(torch.float64)
        nearest.append(min(float((torch.eye(len(down)) + (down * s) @ up).norm()) for s in subsets))
    within = all(n >= m for n, m in zip(nearest, margins(), strict=True))
    require(within, f"a random S comes nearer than the certified bound: {nearest}, {margins()}")
    return _figures(nearest)


@claim.numeric("the bounds over ‖I‖, against random blocks with the spectra of two layers")
def random_twins(draw: Draw) -> str:
    m, d = layers()[0].block.up.shape
    expected, size = (1 - m / d**2) ** 0.5, d**0.5
    drawn = draw.subset(len(layers()), 2)
    twins = [absorb(pretrained.random_twin(layers()[i], generator=draw)).margin / size for i in drawn]
    require(
        max(abs(twin - expected) for twin in twins) < 0.005,
        f"random twins stray from {expected:.3f}: {twins}",
    )
    relative = [value / size for value in margins()]
    require(max(relative) < min(twins), "a trained layer is no nearer to the identity than a random one")
    return f"{_figures(relative, 3)} against {_figures(twins, 4)} (expected {expected:.4f})"


def _planted(draw: Draw) -> tuple[int, Residual, tuple[int, ...]]:
    """A random layer with d + 200 of its units changed so that they add up to −I, and these units."""
    layer = draw.integer(0, len(layers()))
    residual = layers()[layer]
    units = draw.subset(residual.block.width, residual.dim_in + 200)
    return layer, plant(residual.block, units), units


@claim.control("P_S ≠ -I for every S", "a layer with a planted S absorbs, and no Y certifies against it")
def planted_set(draw: Draw) -> str:
    layer, planted, units = _planted(draw)
    answer = absorb(planted)
    require(answer.absorbed is True and answer.flipped == units, "the planted S was not found")
    off = gap(planted, answer.network, draw.normal(64, planted.dim_in))
    require(off < 1e-10, f"the network of the planted block is off by {off:.2e}")
    tried = answers()[layer].certificate, torch.eye(planted.dim_in)
    best = max(margin(planted.block.up, planted.block.down, y) for y in tried)
    require(best <= 0, "a certificate excludes every S although one was planted")
    return f"layer {layer}, {len(units)} units, difference {off:.1e}, best bound {best:.1e}"


@claim.control("P_S = -I exactly", "one entry of a planted block moved by 1e-6: refused")
def planted_set_moved(draw: Draw) -> str:
    _, planted, units = _planted(draw)
    down = planted.block.down.clone()
    down[0, units[0]] += 1e-6
    answer = absorb(_replaced(planted.block, planted.block.up, down, planted.block.up_bias))
    require(answer.absorbed is False, "one entry moved by 1e-6 went unnoticed")
    return f"{answer.margin:.1e}"


def _replaced(block: MLP, up: Tensor, down: Tensor, up_bias: Tensor) -> Residual:
    return Residual(MLP(up, down, block.activation, up_bias, block.down_bias))


@claim.control(
    "(u_i, b_i) ≠ ±(u_j, b_j)",
    "d units turned into opposites: absorbs at the same width although no S exists",
)
def opposite_units(draw: Draw) -> str:
    block = layers()[layer := draw.integer(0, len(layers()))].block
    up, bias, last = block.up.clone(), block.up_bias.clone(), slice(-block.dim_in, None)
    up[last], bias[last] = -up[: block.dim_in], -bias[: block.dim_in]
    return f"layer {layer}: {_absorbs_without_a_set(_replaced(block, up, block.down, bias), draw)}"


@claim.control("a_i ≠ 0", "d units pruned: absorbs at the same width although no S exists")
def pruned_units(draw: Draw) -> str:
    block = layers()[layer := draw.integer(0, len(layers()))].block
    down = block.down.clone()
    down[:, -block.dim_in :] = 0
    return f"layer {layer}: {_absorbs_without_a_set(_replaced(block, block.up, down, block.up_bias), draw)}"


def _absorbs_without_a_set(degenerate: Residual, draw: Draw) -> str:
    answer, bound = absorb(degenerate), certified_bound(degenerate, _dual(degenerate))
    require(answer.absorbed is True, f"the block should absorb its skip: {answer}")
    require(bound > 0, "the criterion should fail for every S")
    off = gap(degenerate, answer.network, draw.normal(64, degenerate.dim_in))
    require(off < 1e-10, f"the network is off by {off:.2e}")
    return f"difference {off:.1e}, ‖I + P_S‖ ≥ {bound:.2f}"


def _dual(residual: Residual) -> Tensor:
    """A certificate Y where the a_i u_iᵀ are dependent: the least-squares residual of I, nearly.

    By conjugate gradients; any Y is a valid certificate, so they may stop early.
    """
    up, down = residual.block.up, residual.block.down
    y = torch.eye(residual.dim_in)
    step, slope = torch.zeros(len(up)), torch.inf
    for _ in range(40):
        gradient = ((y.T @ down).T * up).sum(1)
        step = gradient + float(gradient @ gradient) / slope * step
        slope = float(gradient @ gradient)
        move = (down * step) @ up
        y = y - slope / float((move**2).sum()) * move
    return y
