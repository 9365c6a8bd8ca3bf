"""What the ReLU chapter and the GELU chapter both check of a block with a redundant unit."""

from __future__ import annotations

from ...draw import Draw
from ...functions import gap
from ...skip.absorption import absorb
from ...skip.planted import spare_unit_block, subsets_that_work
from .. import require


def absorbs_without_a_set(kind: str, activation: str, draw: Draw) -> str:
    """A random :func:`~samefn.skip.planted.spare_unit_block` absorbs its skip, though no S has P_S = −I.

    Raises ClaimFailed if not.
    """
    residual = spare_unit_block(kind, activation, generator=draw)
    require(subsets_that_work(residual) == [], f"{kind}: a subset satisfies the criterion after all")
    found = absorb(residual)
    require(found.absorbed is True, f"{kind}: the block was not absorbed: {found}")
    off = gap(residual, found.network, draw.normal(500, 2))
    require(off < 1e-10, f"{kind}: the residual-free block differs by {off:.1e}")
    return f"relative difference {off:.1e}"
