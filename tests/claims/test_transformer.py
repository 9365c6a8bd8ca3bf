"""The claim X-REAL: its own arithmetic against brute force and exact fractions, and that it fails where it
should.
"""

from fractions import Fraction

import pytest
import torch

from samefn import pretrained
from samefn.claims import ClaimFailed
from samefn.claims.beyond import transformer
from samefn.networks import MLP, Residual, random_mlp
from samefn.skip.absorption import absorb
from samefn.skip.criterion import certified_bound
from samefn.skip.planted import plant


@pytest.fixture
def given(monkeypatch):
    """Replace the trained layers by others."""

    def replace(*layers):
        norms = tuple((torch.ones(r.dim_in), torch.zeros(r.dim_in)) for r in layers)
        monkeypatch.setattr(pretrained, "feed_forward", lambda: layers)
        monkeypatch.setattr(pretrained, "input_norms", lambda: norms)

    cached = transformer.layers, transformer.answers, transformer.margins
    for function in cached:
        function.cache_clear()
    yield replace
    for function in cached:
        function.cache_clear()


@pytest.mark.parametrize("seed", range(20))
def test_the_margin_is_below_every_subset_and_below_exact_arithmetic(seed):
    generator = torch.Generator().manual_seed(seed)
    block = random_mlp(3, 6, "gelu", generator=generator)
    up, down = block.up.detach(), block.down.detach()
    subsets = torch.cartesian_prod(*[torch.tensor([0.0, 1.0], dtype=torch.float64)] * 6)
    eye = torch.eye(3, dtype=torch.float64)
    nearest = torch.linalg.matrix_norm(eye + torch.einsum("si,di,ik->sdk", subsets, down, up)).min()
    for y in (eye, torch.randn(3, 3, dtype=torch.float64, generator=generator)):
        bound = transformer.margin(up, down, y)
        assert bound <= nearest
        assert bound == pytest.approx(certified_bound(Residual(block), y), abs=1e-9) or bound <= 0

        u, a, e = [[[Fraction(v) for v in row] for row in matrix.tolist()] for matrix in (up, down, y)]
        inner = [sum(a[p][i] * e[p][q] * u[i][q] for p in range(3) for q in range(3)) for i in range(6)]
        value = sum(e[k][k] for k in range(3)) + sum(min(Fraction(0), v) for v in inner)
        square = sum(entry**2 for row in e for entry in row)
        if bound > 0:
            assert value > 0 and Fraction(bound) ** 2 * square <= value**2


def test_separation_is_the_least_distance_up_to_sign():
    rows = torch.randn(12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    pairs = [(rows[i], rows[j]) for i in range(12) for j in range(i)]
    brute = min(min(float((p - q).norm()), float((p + q).norm())) for p, q in pairs)
    assert transformer.separation(rows) == pytest.approx(brute, rel=1e-6)
    assert transformer.separation(torch.cat([rows, -rows[:1]])) < 1e-6


def test_the_claim_fails_on_a_layer_that_absorbs(given):
    block = random_mlp(4, 12, "gelu", biases=True, generator=torch.Generator().manual_seed(3))
    planted = plant(block, (0, 2, 5, 7, 11))
    assert absorb(planted).absorbed
    given(planted)
    for name in ("every_layer_is_refuted", "refuted_between_layer_norms", "found_sets"):
        with pytest.raises(ClaimFailed, match="layer 0 was not refuted"):
            transformer.claim.check(name)


def test_the_claim_fails_where_its_hypotheses_do(given):
    block = random_mlp(4, 12, "gelu", biases=True, generator=torch.Generator().manual_seed(3))
    up, bias = block.up.clone(), block.up_bias.clone()
    up[1], bias[1] = -up[0], -bias[0]
    given(Residual(MLP(up, block.down, "gelu", bias, block.down_bias)))
    with pytest.raises(ClaimFailed, match="hypotheses"):
        transformer.claim.check("hypotheses")
