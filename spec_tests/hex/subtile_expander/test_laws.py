"""The sub-tile family of masks, which is ours: kernels compute these masks themselves."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import CORNERS, INPUTS

pytestmark = pytest.mark.spec("HEX-Subtile")


@given(INPUTS["subtile_permutations"])
def test_every_code_is_a_permutation(impl, x):
    images = impl.subtile_permutations(**x)
    ordered = torch.arange(x["width"]).expand_as(images)
    assert_equal(images.sort(-1).values, ordered.contiguous())


@given(INPUTS["subtile_codes"])
def test_codes_are_four_bytes_with_odd_multipliers(impl, x):
    codes = impl.subtile_codes(**x)
    assert codes.shape == (x["heads"], x["tokens"] // x["subtile"])
    assert ((codes >= 0) & (codes < 2**32) & (codes & 0x10001 == 0x10001)).all()


@given(INPUTS["subtile_mask"])
def test_a_token_keeps_its_share_of_each_head_and_a_channel_one_token_a_subtile(impl, x):
    heads, subtiles, width = x["permutations"].shape
    mask = impl.subtile_mask(**x).reshape(subtiles, x["subtile"], heads, width)
    assert (mask.sum(3) == width // x["subtile"]).all()
    assert (mask.sum(1) == 1).all()


@given(INPUTS["subtile_mask"])
def test_a_token_owns_the_channels_at_its_places_of_the_permutation(impl, x):
    heads, _, width = x["permutations"].shape
    share = width // x["subtile"]
    for t, row in enumerate(impl.subtile_mask(**x)):
        place = share * (t % x["subtile"])
        for head in range(heads):
            owned = x["permutations"][head, t // x["subtile"], place : place + share]
            assert row[head * width + owned].all()


def test_a_seed_and_a_draw_name_codes(impl):
    names = [(0, 0), (0, 1), (1, 0), (2, 5)]
    first, again = ([impl.subtile_codes(96, 2, *name) for name in names] for _ in "ab")
    assert_equal(first, again)
    assert len(torch.stack(first).unique(dim=0)) == 4


@given(INPUTS["subtile_expander"] | st.sampled_from(CORNERS["subtile_expander"]))
def test_the_codes_are_of_a_ramanujan_mask(impl, x):
    codes = impl.subtile_expander(**x).codes
    mask = impl.subtile_mask(impl.subtile_permutations(codes, x["width"]), x["subtile"])
    assert mask.shape == (x["tokens"], x["heads"] * x["width"])
    assert impl.is_ramanujan(mask)


def test_no_seed_gives_codes_of_a_mask_over_the_bound(impl):
    # one in seven of this size exceeds the bound
    found = [impl.subtile_expander(12, 3, seed, 4, 4) for seed in range(40)]
    for codes, _ in found:
        assert impl.is_ramanujan(impl.subtile_mask(impl.subtile_permutations(codes, 4), 4))
    assert min(draws for _, draws in found) == 1


@pytest.mark.ours_only
@given(INPUTS["subtile_expander"] | st.sampled_from(CORNERS["subtile_expander"]))
def test_the_codes_are_the_first_whose_mask_is_ramanujan(impl, x):
    found = impl.subtile_expander(**x)
    width, subtile = x["width"], x["subtile"]
    sizes = (x["tokens"], x["heads"], x["seed"])
    for draw in range(found.draws):
        codes = impl.subtile_codes(*sizes, draw, width, subtile)
        mask = impl.subtile_mask(impl.subtile_permutations(codes, width), subtile)
        assert impl.is_ramanujan(mask) == (draw + 1 == found.draws)
    assert_equal(found.codes, impl.subtile_codes(*sizes, found.draws - 1, width, subtile))


def test_the_family_has_the_degrees_of_the_block_mask(impl):
    codes = impl.subtile_expander(96, 8).codes
    mask = impl.subtile_mask(impl.subtile_permutations(codes))
    assert codes.shape == (8, 3)
    assert (mask.sum(1) == 32).all()
    assert (mask.sum(0) == 3).all()
