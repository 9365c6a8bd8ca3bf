"""Blocks that absorb their skip by construction, and examples that several chapters share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, SupportsIndex, get_args

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from ..activations import Activation
from ..arguments import Finite, NonNegative
from ..networks import MLP, GatedMLP, Residual, random_mlp
from .collect import constants_count, keys_of
from .criterion import (
    accurate_product,
    criterion_of,
    in_float64,
    narrowed,
    odd_slope_of,
    rebuilt,
    require_units,
    subset_distances,
)

SPANNED = 1e-9  # of what is missing may be missed: the rows of the units then span it, up to rounding


def plant(
    block: MLP | GatedMLP, units: Iterable[SupportsIndex], skip: Float[Tensor, "d d"] | None = None
) -> Residual:
    """A residual block that absorbs its skip by flipping ``units``: the nearest in their columns a_i.

    Adds to those columns the least change (in Frobenius norm) after which 2c P_S = -A, each entry of
    them rounded once.  The result has the block's dtype if that holds it exactly, and otherwise float64, as a
    set planted in float32 and rounded is none.
    Raises ValueError if a unit does not exist or is named twice, the rows of ``units`` do not span what is
    needed, or there is no criterion, TypeError for units that are no integers.

    >>> from samefn import absorb
    >>> from samefn.draw import Draw
    >>> from samefn.networks import random_mlp
    >>> from samefn.skip.planted import plant
    >>> absorb(plant(random_mlp(3, 8, generator=Draw(0)), units=(1, 4, 5))).flipped
    (1, 4, 5)
    """
    given = Residual(block, skip)
    criterion_of(given)  # there is one
    exact, chosen, slope = in_float64(given), require_units(block, units), odd_slope_of(block)
    assert slope is not None
    rows, target = exact.block.up.detach()[chosen], exact.skip_matrix().detach()
    if constants_count(block):
        rows, target = keys_of(exact.block)[chosen], pad(target, (0, 1))
    inverse, columns = torch.linalg.pinv(2 * slope * rows), exact.block.down.detach()[:, chosen]
    missing = needed = -accurate_product(target, 2 * slope * columns, rows)
    for _ in range(3):  # the second and third time what rounding has left
        columns = columns + missing @ inverse
        missing = -accurate_product(target, 2 * slope * columns, rows)
    if float(missing.norm()) > SPANNED * float(needed.norm()):
        raise ValueError(
            f"units must have rows that span the row space of what is missing, got {tuple(chosen)}"
        )
    down = exact.block.down.detach().clone()
    down[:, chosen] = columns
    planted = narrowed(rebuilt(exact.block, down=down), block.up)
    return Residual(planted, None if skip is None else skip.detach().to(planted.up))


# --- examples that several chapters share ---------------------------------------------------------

SpareUnit = Literal["dead unit", "duplicated unit", "opposite pair"]
SPARE_UNITS: tuple[SpareUnit, ...] = get_args(SpareUnit)


def running_example(moved: Finite = 0.0) -> Residual:
    """The ReLU chapter's block in float64: d = 2, m = 4, P_S = -I for S = {0, 1, 2} and for no other S.

    ``moved`` is added to the first entry of W_down, so that P_S + I = diag(moved, 0).

    >>> from samefn.skip.planted import running_example
    >>> block = running_example().block
    >>> (block.down[:, :3] @ block.up[:3]).tolist()  # P_S = -I
    [[-1.0, 0.0], [0.0, -1.0]]
    """
    up = torch.tensor([[1, 0], [0, 1], [1, 1], [1, -1]], dtype=torch.float64)
    down = torch.tensor([[-1.5 + moved, -0.5, 0.5, 1], [0.5, -0.5, -0.5, 0.5]], dtype=torch.float64)
    return Residual(MLP(up, down))


def spare_unit_block(
    kind: SpareUnit, activation: str | Activation = "relu", *, generator: torch.Generator
) -> Residual:
    """A block in the plane, m = 6, degenerate in one way, that absorbs its skip although P_S = -I for no S.

    ``kind``, one of ``SPARE_UNITS``, says what unit 5 is: "dead unit" (a_5 = 0), "duplicated unit"
    (u_5 = u_0) or "opposite pair" (u_5 = -u_0).  The set {1, 2, 3} misses -I by a matrix v u_0ᵀ only,
    and unit 5 makes that up: v (u_0·x) = v σ(u_0·x) - v σ(-u_0·x).
    Raises ValueError where σ(z) - σ(-z) is not z.

    >>> from samefn import absorb
    >>> from samefn.draw import Draw
    >>> from samefn.skip.planted import spare_unit_block, subsets_that_work
    >>> residual = spare_unit_block("opposite pair", generator=Draw(0))
    >>> subsets_that_work(residual), absorb(residual).absorbed
    ([], True)
    """
    block = random_mlp(2, 6, activation, generator=generator)
    if block.activation.odd_slope != 0.5:
        raise ValueError(f"activation must satisfy σ(z) - σ(-z) = z, got {block.activation.name}")
    up, down = block.up.detach().clone(), block.down.detach().clone()
    if kind == "dead unit":
        down[:, 5] = 0
    else:
        up[5] = up[0] if kind == "duplicated unit" else -up[0]
    missed = torch.randn(2, 1, generator=generator, dtype=torch.float64) * up[0]
    planted = plant(MLP(up, down, activation), (1, 2, 3), torch.eye(2, dtype=torch.float64) - missed)
    return Residual(planted.block)


def subsets_that_work(residual: Residual, tolerance: NonNegative = 1e-9) -> list[tuple[int, ...]]:
    """All S with ‖A + 2c P_S‖_F ≤ ``tolerance``, as sorted tuples, by trying all 2^m; for small blocks.

    Raises as :func:`~samefn.skip.criterion.subset_distances` does.

    >>> from samefn.skip.planted import running_example, subsets_that_work
    >>> subsets_that_work(running_example())
    [(0, 1, 2)]
    """
    works = (subset_distances(residual) <= tolerance).nonzero().flatten().tolist()
    return [tuple(i for i in range(residual.block.width) if k >> i & 1) for k in works]
