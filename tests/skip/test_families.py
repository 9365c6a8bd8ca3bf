"""The table of the summary chapter: every family gets a verdict, and every verdict names its claim."""

import pytest

from samefn.draw import Draw
from samefn.skip.families import FAMILIES, verdicts

CLAIMS = {
    **dict.fromkeys(("SwiGLU", "GeGLU", "ReGLU", "bilinear"), "A-P6"),
    "GLU": "X-GLU",
    "ReLU²": "A-P5",
    "ReLU": "A-T8",
    "GELU": "A-T10",
}


@pytest.mark.parametrize("seed", range(3))
def test_a_random_block_of_every_family_is_refuted_by_a_claim(seed):
    found = verdicts(generator=Draw(seed))
    assert tuple(family for family, _ in found) == FAMILIES
    for family, answer in found:
        assert answer.absorbed is False and answer.margin > 0
        assert answer.claim == CLAIMS.get(family.name, "X-ODD")


def test_the_generator_decides_the_blocks():
    margins = [[answer.margin for _, answer in verdicts(3, 5, generator=Draw(seed))] for seed in (0, 0, 1)]
    assert margins[0] == margins[1] != margins[2]


def test_no_name_stands_twice():
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
