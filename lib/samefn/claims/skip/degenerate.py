"""What the chapters of ReLU, GELU and almost all weights show in the same way: a certificate checked by
hand, and what happens where a hypothesis of the criterion is dropped.
"""

from __future__ import annotations

import torch

from ...draw import Draw
from ...functions import gap
from ...networks import MLP, Residual
from ...skip.absorption import Absorption
from ...skip.planted import spare_unit_block, subsets_that_work
from .. import require


def proved_by(found: Absorption, residual: Residual) -> float:
    """The bound of ‖M + P_S‖_F over all S that the matrix Y of a refutation proves, computed here anew.

    Raises ClaimFailed if there is no refutation, if Y proves nothing, or if the margin is another number.
    """
    require(found.absorbed is False and found.certificate is not None, f"not refuted by a matrix: {found}")
    y, block = found.certificate, residual.block
    least = (y * residual.skip_matrix()).sum() + (block.down.T @ y * block.up).sum(1).clamp(max=0).sum()
    bound = float(least / y.norm())
    require(bound > 0 and abs(found.margin - bound) < 1e-9, f"Y proves {bound}, the margin is {found.margin}")
    return bound


def absorbs_without_a_set(kind: str, activation: str, draw: Draw) -> str:
    """A random block with a unit to spare absorbs its skip, though no S has P_S = −I.

    ``kind`` is that of a :func:`~samefn.skip.planted.spare_unit_block`, or "zero row".  The residual-free
    block is written down: the units 1, 2, 3 turned miss x by v (u_0·x) = v σ(u_0·x) - v σ(-u_0·x), which
    unit 0 and the spare one take over.  Raises ClaimFailed if it is another function, or a set S works.
    """
    residual = spare_unit_block(kind.replace("zero row", "dead unit"), activation, generator=draw)
    up, down = residual.block.up.detach().clone(), residual.block.down.detach().clone()
    if kind == "zero row":
        up[5], down[:, 5] = 0.0, draw.normal(2)
        residual = Residual(MLP(up.clone(), down.clone(), activation))
    require(subsets_that_work(residual) == [], f"{kind}: a subset satisfies the criterion after all")
    v = (torch.eye(2) + down[:, 1:4] @ up[1:4]) @ up[0] / (up[0] @ up[0])
    down[:, 0] += v + down[:, 5] * (kind == "duplicated unit")
    down[:, 5] = down[:, 5] * (kind == "opposite pair") - v
    up[1:4], up[5] = -up[1:4], -up[0]
    off = gap(residual, MLP(up, down, activation), draw.normal(500, 2))
    require(off < 1e-10, f"{kind}: the residual-free block differs by {off:.1e}")
    return f"relative difference {off:.1e}"


def absorbs_with_more_units(block: MLP, draw: Draw) -> str:
    """x + B(x) as a block of m + d units, by opposite pairs on a basis of rows, though no S has P_S = −I.

    The first d rows of ``block`` must be a basis, and σ(z) − σ(−z) must be z.
    """
    d = block.dim_in
    require(subsets_that_work(Residual(block)) == [], "the block absorbs its skip at its own width")
    inverse = torch.linalg.inv(block.up[:d])
    down = torch.cat([block.down[:, :d] + inverse, block.down[:, d:], -inverse], 1)
    wider = MLP(torch.cat([block.up, -block.up[:d]]), down, block.activation)
    x = draw.normal(200, d)
    # the new weights are as large as the inverse, and so are the terms that cancel
    scale = float((x @ block.up.T).abs().max() * (1 + inverse.norm()))
    off = float((wider(x) - x - block(x)).abs().max()) / scale
    require(off < 1e-13, f"d more units do not make up for the skip: {off:.1e}")
    return f"relative difference {off:.1e}, width {block.width} + {d}"


def absorbs_on_the_line(block: MLP) -> str:
    """A ReLU block on the line plus x, as two units, though no S has P_S = −I."""
    residual = Residual(block)
    require(subsets_that_work(residual) == [], "a subset satisfies the criterion after all")
    sides = torch.tensor([[1.0], [-1.0]])
    off = gap(residual, MLP(sides, residual(sides).T), torch.linspace(-2, 2, 9)[:, None])
    require(off < 1e-14, f"two units differ from the skip block by {off:.1e}")
    return f"relative difference {off:.1e}"


def bias_is_left_over(activation: str, draw: Draw) -> str:
    """One unit with a bias on the line, au = −1, and x + B(x) is no unit with a bias.

    It tends to −b/u ≠ 0 at one end and is unbounded at the other; a unit a'σ(u'x + b') is constant, or
    tends to 0 at one end, where σ tends to 0 at −∞ as ReLU and GELU do.
    """
    u, b = draw.signs(2) * (draw.uniform(2) + 0.5)
    block = MLP(u.view(1, 1), -1 / u.view(1, 1), activation, b.view(1))
    far = 1000 * u.sign() * torch.tensor([[1.0], [-1.0]])
    limit, unbounded = Residual(block)(far).flatten()
    require(abs(limit + b / u) < 1e-9 and abs(unbounded) > 900, f"the ends are {limit} and {unbounded}")
    return f"limit {float(limit):.3f} at one end, none at the other"
