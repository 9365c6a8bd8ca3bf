"""Every check of every claim holds on many seeds; one that draws nothing runs once."""

import pytest

from samefn import claims

CHECKS = [check for claim in claims.registry().values() for check in claim.checks]
MOST_SEEDS = {"X-REAL": 2}  # its weights are given; a seed only changes what they are compared with


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: f"{check.claim}-{check.name}")
def test_check(check, seeds):
    count = min(seeds, MOST_SEEDS.get(check.claim, seeds)) if check.seeded else 1
    for seed in range(1, 1 + count):
        check.run(seed)
