"""The sub-tile family of masks, which is ours: kernels compute these masks themselves."""

import pytest
import torch
from hypothesis import given

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS

pytestmark = pytest.mark.spec("HEX-Subtile")


@given(INPUTS["subtile_permutations"])
def test_every_code_is_a_permutation(impl, x):
    images = impl.subtile_permutations(**x)
    ordered = torch.arange(x["width"]).expand_as(images)
    assert_equal(images.sort(-1).values, ordered.contiguous())


@given(INPUTS["subtile_mask"])
def test_a_token_keeps_its_share_of_each_head_and_a_channel_one_token_a_subtile(impl, x):
    heads, subtiles, width = x["permutations"].shape
    mask = impl.subtile_mask(**x).reshape(subtiles, x["subtile"], heads, width)
    assert (mask.sum(3) == width // x["subtile"]).all()
    assert (mask.sum(1) == 1).all()


def test_a_seed_and_a_draw_name_codes(impl):
    names = [(0, 0), (0, 1), (1, 0), (2, 5)]
    first, again = ([impl.subtile_codes(96, 2, *name) for name in names] for _ in "ab")
    assert_equal(first, again)
    assert len(torch.stack(first).unique(dim=0)) == 4


def test_no_seed_gives_codes_of_a_mask_over_the_bound(impl):
    # one in seven of this size exceeds the bound
    found = [impl.subtile_expander(12, 3, seed, 4, 4) for seed in range(40)]
    for codes, _ in found:
        assert impl.is_ramanujan(impl.subtile_mask(impl.subtile_permutations(codes, 4), 4))
    assert min(draws for _, draws in found) == 1
