"""X-REAL: in none of the six layers of all-MiniLM-L6-v2 can the feed-forward block absorb its skip."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from ..absorption import absorb, certified_bound, plant
from ..networks import MLP, Residual
from ..pretrained import feed_forward, input_norms, random_twin
from . import Claim, Control, Evidence, require

UNIT_ROUNDOFF = 2.0**-53


def margin(up: Tensor, down: Tensor, y: Tensor) -> float:
    """The lower bound of ‖I + P_S‖_F over all S that Y certifies, in plain arithmetic; negative if none.

    Independent of :mod:`samefn.absorption`, so that a certificate found there is checked by other
    code.  A sum of n products is off by at most nu/(1 - nu) of the sum of their sizes, u = 2^-53;
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


def _figures(values: list[float], digits: int = 2) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _difference(residual: Residual, network: MLP, generator: torch.Generator) -> float:
    """max |x + B(x) - B'(x)| over 64 normal inputs."""
    x = torch.randn(64, residual.dim_in, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        return float((residual(x) - network(x)).abs().max())


def _replaced(block: MLP, up: Tensor, down: Tensor, up_bias: Tensor) -> Residual:
    return Residual(MLP(up, down, block.activation, up_bias, block.down_bias))


def evidence(seed: int) -> Iterator[Evidence]:
    generator = torch.Generator().manual_seed(seed)
    layers = feed_forward()
    d, m = layers[0].dim_in, layers[0].block.width

    rows = [torch.cat([r.block.up, r.block.up_bias[:, None]], 1) for r in layers]
    apart = [separation(row) for row in rows]
    smallest = min(
        min(float(r.block.up.norm(dim=1).min()), float(r.block.down.norm(dim=0).min())) for r in layers
    )
    require(min(apart) > 1e-3 and smallest > 1e-3, "a trained block breaks the theorem's hypotheses")
    yield Evidence(
        "certificate",
        "the hypotheses hold in all six layers: least ‖(u_i,b_i) ∓ (u_j,b_j)‖, least ‖u_i‖ or ‖a_i‖",
        f"{min(apart):.3f}, {smallest:.3f}",
    )

    drawn = torch.randperm(len(layers), generator=generator)[:2].tolist()  # layers to compare with random twins
    margins, projected, nearest, twins = [], [], [], []
    for layer, (residual, (gain, _)) in enumerate(zip(layers, input_norms())):
        up, down = residual.block.up, residual.block.down
        answer = absorb(residual)
        require(answer.absorbed is False and answer.certificate is not None, f"layer {layer} was not refuted")
        y = answer.certificate
        margins.append(margin(up, down, y))
        require(margins[-1] > 0, f"the certificate of layer {layer} does not hold: bound {margins[-1]:.3g}")

        normal = 1 / gain / (1 / gain).norm()  # of the hyperplane that holds every output of the LayerNorm
        on_inputs = y - torch.outer(y @ normal, normal)
        projected.append(margin(up, down, on_inputs - on_inputs.mean(0)))
        require(projected[-1] > 0, f"layer {layer}: no certificate inside and after LayerNorm")

        subsets = (torch.rand(8, m, generator=generator) < 0.3).to(torch.float64)
        distances = [float((torch.eye(d, dtype=torch.float64) + (down * s) @ up).norm()) for s in subsets]
        nearest.append(min(distances))
        require(nearest[-1] >= margins[-1], f"layer {layer}: a random S comes nearer than the certified bound")

        if layer in drawn:
            twins.append(absorb(random_twin(residual, generator)).margin / d**0.5)
    yield Evidence("certificate", "‖I + P_S‖ is at least this for every S, layers 0 to 5", _figures(margins))
    yield Evidence(
        "certificate",
        "the same where inputs are LayerNorm outputs and the next LayerNorm drops the mean",
        _figures(projected),
    )
    yield Evidence("numeric", "no random S beats the bound: nearest of 8 a layer", _figures(nearest))

    expected = (1 - m / d**2) ** 0.5
    relative = [value / d**0.5 for value in margins]
    require(max(abs(twin - expected) for twin in twins) < 0.005, f"random twins stray from {expected:.3f}: {twins}")
    require(max(relative) < min(twins), "a trained layer is no nearer to the identity than a random one")
    yield Evidence(
        "numeric",
        f"the bounds over ‖I‖, against random blocks with the spectra of two layers (expected {expected:.4f})",
        f"{_figures(relative, 3)} against {_figures(twins, 4)}",
    )


def controls(seed: int) -> Iterator[Control]:
    generator = torch.Generator().manual_seed(seed)
    layer = int(torch.randint(6, (), generator=generator))
    residual = feed_forward()[layer]
    block, d, m = residual.block, residual.dim_in, residual.block.width
    up, down, up_bias = block.up.detach(), block.down.detach(), block.up_bias.detach()
    y = absorb(residual).certificate

    chosen = tuple(sorted(torch.randperm(m, generator=generator)[: d + 200].tolist()))
    planted = plant(block, chosen)
    answer = absorb(planted)
    require(answer.absorbed is True and answer.flipped == chosen, "the planted S was not found")
    error = _difference(planted, answer.network, generator)
    require(error < 1e-8, f"the network of the planted block is off by {error:.2e}")
    bounds = [margin(up, planted.block.down.detach(), matrix) for matrix in (y, torch.eye(d, dtype=torch.float64))]
    require(max(bounds) <= 0, "a certificate excludes every S although one was planted")
    yield Control(
        "P_S ≠ -I for every S",
        f"layer {layer} with a planted S of {len(chosen)} units absorbs, and no Y certifies against it",
        f"difference {error:.1e}, best bound {max(bounds):.1e}",
    )

    moved = planted.block.down.detach().clone()
    moved[0, chosen[0]] += 1e-6
    answer = absorb(_replaced(block, up, moved, up_bias))
    require(answer.absorbed is False, "one entry moved by 1e-6 went unnoticed")
    yield Control("P_S = -I exactly", "one entry of the planted block moved by 1e-6: refused", f"{answer.margin:.1e}")

    last = slice(m - d, m)
    pairs_up, pairs_bias = up.clone(), up_bias.clone()
    pairs_up[last], pairs_bias[last] = -up[:d], -up_bias[:d]
    pruned = down.clone()
    pruned[:, last] = 0
    for dropped, what, changed in (
        ("(u_i, b_i) ≠ ±(u_j, b_j)", f"{d} units turned into opposites", (pairs_up, down, pairs_bias)),
        ("a_i ≠ 0", f"{d} units pruned", (up, pruned, up_bias)),
    ):
        degenerate = _replaced(block, *changed)
        answer, bound = absorb(degenerate), certified_bound(degenerate, _dual(degenerate))
        require(answer.absorbed is True, f"{what}: the block should absorb its skip")
        require(bound > 0, f"{what}: the criterion should fail for every S")
        error = _difference(degenerate, answer.network, generator)
        require(error < 1e-6, f"{what}: the network is off by {error:.2e}")
        yield Control(
            dropped,
            f"layer {layer}, {what}: absorbs at the same width although no S exists",
            f"difference {error:.1e}, ‖I + P_S‖ ≥ {bound:.2f}",
        )


def _dual(residual: Residual) -> Tensor:
    """A certificate Y where the a_i u_iᵀ are dependent: the least-squares residual of I, nearly, by conjugate gradients.

    Any Y is a valid certificate, so the iteration may stop early.
    """
    up, down = residual.block.up.detach(), residual.block.down.detach()
    y = torch.eye(residual.dim_in, dtype=up.dtype)
    step = slope = None
    for _ in range(40):
        gradient = ((y.T @ down).T * up).sum(1)
        step = gradient if step is None else gradient + float(gradient @ gradient) / slope * step
        slope = float(gradient @ gradient)
        move = (down * step) @ up
        y = y - slope / float((move**2).sum()) * move
    return y


CLAIM = Claim(
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
    evidence=evidence,
    controls=controls,
)
