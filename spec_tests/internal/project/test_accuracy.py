"""The tolerance admits results of another summation order, and rejects wrong ones."""

# pyright: reportArgumentType=false

import pytest
import torch
import torch.nn.functional as F

import reference
from spec_tests.accuracy import assert_as_accurate, assert_close

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def drawn(dtype, *shape, seed=0):
    """Return Gaussian numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_attention_in_another_order_is_right_and_a_slip_is_wrong(dtype):
    names = ("queries", "keys", "values")
    inputs = {name: drawn(dtype, 2, 20, 8, seed=seed) for seed, name in enumerate(names)}
    wide = [x.to(torch.promote_types(dtype, torch.float32)) for x in inputs.values()]
    fused = F.scaled_dot_product_attention(*wide, is_causal=True).to(dtype)
    assert_as_accurate(fused, reference.attention, inputs)
    slip = 1e-12 if dtype == torch.float64 else 2**-6
    with pytest.raises(AssertionError):
        assert_as_accurate(fused * (1 + slip), reference.attention, inputs)


def test_small_elements_are_held_to_their_own_size():
    scores = torch.tensor([[1.0, 0.015, 0.01, 0.005]]).bfloat16()
    blanked = reference.smd(scores).where(scores > 0.02, 0)
    with pytest.raises(AssertionError):
        assert_as_accurate(blanked, reference.smd, dict(scores=scores))


def test_where_two_candidates_lie_within_rounding_of_each_other_either_is_kept():
    # (a + b) + c and a + (b + c): a third party's sums may rank them in reverse
    parts = torch.tensor([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]], dtype=torch.float64)

    def best(parts):
        return reference.retain((parts[:, 0] + parts[:, 1]) + parts[:, 2], keep=1)

    def other(parts):
        return reference.retain(parts[:, 0] + (parts[:, 1] + parts[:, 2]), keep=1)

    assert not torch.equal(best(parts), other(parts))
    assert_as_accurate(other(parts), best, dict(parts=parts))
    with pytest.raises(AssertionError):  # of equal candidates the first
        assert_as_accurate(torch.tensor([False, True]), best, dict(parts=parts[:1].repeat(2, 1)))


def test_a_low_rank_factor_may_be_of_another_sign():
    x = drawn(torch.float64, 1, 6, 5)
    found = reference.low_rank(x, 2)
    turned = found._replace(left=-found.left, right=-found.right)
    assert_as_accurate(turned, reference.low_rank, dict(x=x, rank=2))
    with pytest.raises(AssertionError):
        assert_as_accurate(found._replace(left=-found.left), reference.low_rank, dict(x=x, rank=2))


def test_half_precision_is_rounded_once():
    third = torch.tensor([1 / 3]).bfloat16()
    beside = torch.nextafter(third, torch.ones_like(third))
    two_off = torch.nextafter(beside, torch.ones_like(third))
    assert_close(beside, 1 / 3, scale=0.0)
    with pytest.raises(AssertionError):
        assert_close(two_off + (two_off - beside), 1 / 3, scale=0.0)


def test_infinite_results_are_equal():
    kept = torch.tensor([True, False])
    scores = torch.tensor([-torch.inf, 0.0])
    for dtype in DTYPES:
        inputs = dict(scores=scores.to(dtype), kept=kept)
        utility = reference.modular_utility(**inputs)
        assert_as_accurate(utility, reference.modular_utility, inputs)
        with pytest.raises(AssertionError):
            assert_as_accurate(utility.new_tensor(0.0), reference.modular_utility, inputs)
