"""X-REAL: in none of the six layers of all-MiniLM-L6-v2 can the feed-forward block absorb its skip.  Chapter
``beyond/transformer``.

The weights are given; a seed only changes what they are compared with.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ... import pretrained
from ...activations import get
from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual
from ...skip.absorption import Absorption, absorb, flip
from ...skip.criterion import certified_bound
from ...skip.planted import plant
from .. import Claim, require

UNIT_ROUNDOFF = 2.0**-53

claim = Claim(
    id="X-REAL",
    title="No feed-forward block of all-MiniLM-L6-v2 with skip is a residual-free GELU block of its width",
    source="[A], Theorem 10, with biases added; certificates ours",
    hypotheses=(
        "every u_i ≠ 0",
        "no two (u_i, b_i) equal up to sign",
        "every a_i ≠ 0",
        "equality for all x in R^d, or for all outputs of the LayerNorm before the block",
        "same width",
    ),
    uses=("A-T10",),
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


def _hypotheses(units: list[tuple[Tensor, Tensor, Tensor]]) -> str:
    """Of rows, biases and columns of each layer: the least distance of units up to sign, the least length."""
    apart = min(separation(torch.cat([rows, bias[:, None]], 1)) for rows, bias, _ in units)
    least = min(float(min(rows.norm(dim=1).min(), columns.norm(dim=0).min())) for rows, _, columns in units)
    # three orders of magnitude above the rounding of squares of vectors of these lengths
    require(apart > 1e-3 and least > 1e-3, "a trained block breaks the theorem's hypotheses")
    return f"{apart:.3f}, {least:.3f}"


@claim.certificate(
    "the hypotheses hold in all six layers: least ‖(u_i, b_i) ∓ (u_j, b_j)‖, least ‖u_i‖ or ‖a_i‖"
)
def hypotheses() -> str:
    return _hypotheses([(r.block.up, r.block.up_bias, r.block.down) for r in layers()])


@claim.certificate("and in the coordinates of LayerNorm outputs, modulo multiples of the vector of ones")
def hypotheses_between_layer_norms() -> str:
    units = []
    for residual, (gain, shift) in zip(layers(), pretrained.input_norms(), strict=True):
        up, down = residual.block.up, residual.block.down
        rows = up * gain
        bias = residual.block.up_bias + up @ shift
        units.append((rows - rows.mean(1, keepdim=True), bias, down - down.mean(0)))
    return _hypotheses(units)


@claim.certificate("distinct units, some of parallel rows: even parts independent of each other, 1 and t")
def even_parts_are_independent(draw: Draw) -> str:
    slopes = torch.tensor([1.0, 1.0, 2.0, 1.5, 1.0]) * float(draw.uniform() + 0.5)
    offsets = torch.tensor([0.0, 1.0, 0.0, -1.0, 2.0])
    t, gelu = torch.linspace(-6, 6, 400)[:, None], get("gelu")
    z = slopes * t + offsets
    columns = torch.cat([(gelu(z) + gelu(-z)) / 2, torch.ones_like(t), t], 1)
    values = torch.linalg.svdvals(columns / columns.norm(dim=0))
    require(values[-1] > 1e-9 * values[0], f"dependent to rounding: singular values {values.tolist()}")
    return f"least of 7 singular values {float(values[-1]):.0e}"


@claim.certificate("‖I + P_S‖ is at least this for every S, layers 0 to 5")
def every_layer_is_refuted() -> str:
    return _figures(margins())


def between_layer_norms(y: Tensor, gain: Tensor) -> Tensor:
    """Y projected so that it is blind to what LayerNorm outputs never contain, and the next one ignores."""
    normal = 1 / gain / (1 / gain).norm()  # of the hyperplane that holds every output of the LayerNorm
    y = y - torch.outer(y @ normal, normal)
    return y - y.mean(0)


@claim.certificate("the same where inputs are LayerNorm outputs and the next LayerNorm drops the mean")
def refuted_between_layer_norms() -> str:
    bounds = []
    for residual, answer, (gain, _) in zip(layers(), answers(), pretrained.input_norms(), strict=True):
        y = between_layer_norms(answer.certificate, gain)
        bounds.append(margin(residual.block.up, residual.block.down, y))
    require(min(bounds) > 0, f"no certificate inside and after LayerNorm: bounds {bounds}")
    return _figures(bounds)


@claim.numeric("no S that a search finds beats the bound: nearest ‖I + P_S‖ in layers 0 to 5")
def found_sets(draw: Draw) -> str:
    nearest = []
    for residual in layers():
        up, down = residual.block.up, residual.block.down
        start = (draw.uniform(len(up)) < 0.1).to(torch.float64)
        nearest.append(min(_descended(up, down, s) for s in (torch.zeros(len(up)), start)))
    within = all(n >= m for n, m in zip(nearest, margins(), strict=True))
    require(within, f"an S comes nearer than the certified bound: {nearest}, {margins()}")
    return _figures(nearest)


def _descended(up: Tensor, down: Tensor, chosen: Tensor) -> float:
    """‖I + P_S‖ after single units went in or out of S, the best first, until none brings it down."""
    gram = (down.T @ down) * (up @ up.T)
    slope = gram @ chosen + (down * up.T).sum(0)
    while True:
        step = 1 - 2 * chosen
        change = 2 * step * slope + gram.diagonal()
        unit = int(change.argmin())
        if change[unit] > -1e-9:
            return float((torch.eye(len(down)) + (down * chosen) @ up).norm())
        slope = slope + gram[:, unit] * step[unit]
        chosen[unit] += step[unit]


@claim.numeric("distance of I from the units' span over ‖I‖: layers, against random twins of two layers")
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
    require(max(relative) < min(twins), "a trained layer's units span no more of I than random ones")
    return f"{_figures(relative, 3)} against {_figures(twins, 4)} (expected {expected:.4f})"


def _planted(draw: Draw) -> tuple[int, Residual, tuple[int, ...]]:
    """A random layer with d + 200 of its units changed so that they add up to −I, and these units."""
    layer = draw.integer(0, len(layers()))
    residual = layers()[layer]
    units = draw.subset(residual.block.width, residual.dim_in + 200)
    return layer, plant(residual.block, units), units


@claim.control("P_S ≠ −I for every S", "a layer with a planted S absorbs; its own Y and I no longer certify")
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


@claim.control(
    "for no S is (I + P_S)x the same at all LayerNorm outputs x",
    "planted on the LayerNorm's hyperplane only: agrees there; Y certifies, projected it does not",
)
def planted_between_layer_norms(draw: Draw) -> str:
    layer = draw.integer(0, len(layers()))
    block, (gain, shift) = layers()[layer].block, pretrained.input_norms()[layer]
    d = block.dim_in
    units = draw.subset(block.width, d + 200)
    off = torch.outer(draw.normal(d) / d**0.5, 1 / gain / (1 / gain).norm())
    planted = plant(block, units, torch.eye(d) - off).block
    z = draw.normal(64, d)
    z = z - z.mean(1, keepdim=True)
    x = shift + gain * z
    constant = off @ shift  # what (I + P_S)x is on the hyperplane
    difference = x + planted(x) - (flip(planted, units)(x) + constant)
    worst = float(difference.abs().max() / x.abs().max())
    require(worst < 1e-10, f"the flipped block differs on LayerNorm's hyperplane by {worst:.1e}")
    y = absorb(Residual(planted)).certificate
    require(y is not None, "the block was not refuted on all of R^d")
    ys = y, between_layer_norms(y, gain)
    whole, projected = (margin(planted.up, planted.down, certificate) for certificate in ys)
    require(projected <= 0 < whole, f"bound {whole:.1e} on R^d, {projected:.1e} where one S agrees")
    return f"layer {layer}: difference {worst:.1e}, bound {whole:.1e}, projected {projected:.1e}"


@claim.control("P_S = −I exactly", "one entry of a planted block moved by 1e-6: refused")
def planted_set_moved(draw: Draw) -> str:
    _, planted, units = _planted(draw)
    down = planted.block.down.clone()
    down[0, units[0]] += 1e-6
    answer = absorb(_replaced(planted.block, planted.block.up, down, planted.block.up_bias))
    require(answer.absorbed is False, "one entry moved by 1e-6 went unnoticed")
    return f"{answer.margin:.1e}"


def _replaced(block: MLP, up: Tensor, down: Tensor, up_bias: Tensor) -> Residual:
    return Residual(MLP(up, down, block.activation, up_bias, block.down_bias))


@claim.control("every u_i ≠ 0", "d units that read nothing: absorbs at the same width although no S exists")
def blind_units(draw: Draw) -> str:
    block = layers()[layer := draw.integer(0, len(layers()))].block
    up = block.up.clone()
    up[-block.dim_in :] = 0
    return f"layer {layer}: {_absorbs_without_a_set(_replaced(block, up, block.down, block.up_bias), draw)}"


@claim.control(
    "no two (u_i, b_i) equal up to sign",
    "d units turned into opposites: absorbs at the same width although no S exists",
)
def opposite_units(draw: Draw) -> str:
    block = layers()[layer := draw.integer(0, len(layers()))].block
    up, bias, last = block.up.clone(), block.up_bias.clone(), slice(-block.dim_in, None)
    up[last], bias[last] = -up[: block.dim_in], -bias[: block.dim_in]
    return f"layer {layer}: {_absorbs_without_a_set(_replaced(block, up, block.down, bias), draw)}"


@claim.control("every a_i ≠ 0", "d units pruned: absorbs at the same width although no S exists")
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


@claim.control(
    "equality for all x in R^d, or for all outputs of the LayerNorm before the block",
    "64 inputs: a residual-free block of the same width and rows agrees on them",
)
def finitely_many_inputs(draw: Draw) -> str:
    residual = layers()[layer := draw.integer(0, len(layers()))]
    block, x = residual.block, draw.normal(64, residual.dim_in)
    hidden = block.activation(x @ block.up.T + block.up_bias)
    columns = torch.linalg.lstsq(hidden, residual(x) - block.down_bias, driver="gelsd").solution.T
    agreeing = MLP(block.up, columns, block.activation, block.up_bias, block.down_bias)
    off, elsewhere = gap(residual, agreeing, x), gap(residual, agreeing, draw.normal(64, residual.dim_in))
    require(off < 1e-10, f"the fitted block is off by {off:.1e}")
    require(elsewhere > 0.1, f"the fitted block agrees on other inputs too: {elsewhere:.1e}")
    return f"layer {layer}: difference {off:.0e} on them, {elsewhere:.2f} on 64 others"


@claim.control("same width", "d more units: a residual-free block of width m + d equals the residual block")
def wider_block(draw: Draw) -> str:
    residual = layers()[layer := draw.integer(0, len(layers()))]
    block, d = residual.block, residual.dim_in
    dual = torch.linalg.inv(block.up[:d])
    down = torch.cat([block.down, -dual], 1)
    down[:, :d] += dual
    rows, bias = torch.cat([block.up, -block.up[:d]]), torch.cat([block.up_bias, -block.up_bias[:d]])
    wide = MLP(rows, down, block.activation, bias, block.down_bias - dual @ block.up_bias[:d])
    off = gap(residual, wide, draw.normal(64, d))
    require(off < 1e-9, f"the wider block is off by {off:.1e}")
    return f"layer {layer}: width {wide.width}, difference {off:.1e}"
