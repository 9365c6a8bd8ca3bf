"""Every check can fail: the evidence of a claim notices plausible false worlds, and each hypothesis has
a control.
"""

from collections import Counter

import pytest
from false_worlds import World, collect

from samefn import claims
from samefn.claims import ClaimFailed

SABOTAGES = collect()
EACH_CLAIM = pytest.mark.parametrize("claim", claims.registry().values(), ids=lambda claim: claim.id)
SEEDS = 0, 1  # 0 is the one that the chapters and the ledger show


@pytest.mark.parametrize("sabotage", SABOTAGES, ids=lambda s: f"{s.claim}: {s.world}")
def test_evidence_notices(sabotage, monkeypatch):
    evidence = {check.name: check for check in claims.get(sabotage.claim).evidence}
    assert sabotage.caught_by and set(sabotage.caught_by) <= set(evidence)
    sabotage.install(World(monkeypatch))
    for name in sabotage.caught_by:
        for seed in SEEDS:
            with pytest.raises(ClaimFailed):
                evidence[name].run(seed)


@EACH_CLAIM
def test_each_claim_has_four_false_worlds(claim):
    worlds = [s.world for s in SABOTAGES if s.claim == claim.id]
    assert len(worlds) >= 4 and max(Counter(worlds).values()) == 1


@EACH_CLAIM
def test_each_piece_of_evidence_fails_in_some_world(claim):
    caught = {name for s in SABOTAGES if s.claim == claim.id for name in s.caught_by}
    assert {check.name for check in claim.evidence} == caught


@EACH_CLAIM
def test_each_hypothesis_has_a_control(claim):
    assert set(claim.hypotheses) <= {check.dropped for check in claim.controls}
