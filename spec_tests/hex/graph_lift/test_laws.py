"""Coverings of a mask and their new eigenvalues: HEX A.2."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.hex.spectrum.oracle import singular_value_error_scale
from spec_tests.hex.spectrum.strategies import any_mask
from spec_tests.inputs import INPUTS
from spec_tests.strategies import booleans

pytestmark = pytest.mark.spec("HEX-A.2c")


@st.composite
def signed(draw):
    """A mask and a sign for each of its edges."""
    mask = draw(any_mask(least=1))["mask"]
    return mask, draw(booleans(int(mask.sum())))


@given(INPUTS["lift"])
def test_an_edge_follows_its_permutation(impl, x):
    lifted, sheets = impl.lift(**x), x["permutations"].shape[1]
    for (token, channel), images in zip(x["mask"].nonzero(), x["permutations"], strict=True):
        for i in range(sheets):
            assert lifted[sheets * token + i, sheets * channel + images[i]]


@pytest.mark.ours_only
@pytest.mark.argument_checks
@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (2, 3)])
def test_a_permutation_that_no_edge_is_there_for_is_refused(impl, shape):
    mask = torch.zeros(shape) > 0
    for function in (impl.lift, impl.new_singular_value):
        with pytest.raises(ValueError, match=r"permutations must have shape \(0, 2\)"):
            function(mask, torch.tensor([[1, 0]]))


@given(signed())
def test_the_new_singular_value_of_a_double_cover_is_that_of_the_signed_mask(impl, x):
    mask, crossed = x
    permutations = torch.stack([crossed, ~crossed], 1).long()
    signs = mask.double()
    signs[mask] = 1 - 2 * crossed.double()
    new = torch.tensor(impl.new_singular_value(mask, permutations), dtype=torch.float64)
    assert_close(new, torch.linalg.matrix_norm(signs, 2), singular_value_error_scale(mask))


@pytest.mark.spec("HEX-Def2")
@given(INPUTS["ramanujan_lift"])
def test_an_accepted_covering_is_ramanujan(impl, x):
    found = impl.ramanujan_lift(**x)
    assert impl.is_ramanujan(found.mask)
    blocks = found.mask.reshape(len(x["mask"]), x["sheets"], -1, x["sheets"])
    assert (blocks.sum(3) == x["mask"][:, None, :]).all()


def test_a_seed_names_a_covering(impl):
    base = torch.ones(3, 3) > 0
    first, again = ([impl.ramanujan_lift(base, 8, seed).mask for seed in range(4)] for _ in "ab")
    assert_equal(first, again)
    assert len(torch.stack(first).unique(dim=0)) == 4


def test_no_seed_gives_a_covering_over_the_bound(impl):
    # one in six of this size exceeds the bound
    found = [impl.ramanujan_lift(torch.ones(3, 3) > 0, 8, seed) for seed in range(30)]
    assert all(impl.is_ramanujan(mask) for mask, _ in found)
    assert min(draws for _, draws in found) == 1
