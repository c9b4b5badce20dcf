"""Spans of GEAR: codes, outliers, correction."""

from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.quantizers.gear import oracle
from spec_tests.quantizers.gear.strategies import gear_compress
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("HEX-GEAR")

SIDES = st.sampled_from(["channel", "token"])
TALL = st.integers(4, 9).flatmap(lambda tokens: gaussian_tensor(2, tokens, 4))


def restored(impl: Any, x: Tensor, **settings: Any) -> Tensor:
    """Compress and restore."""
    return impl.gear_reconstruct(impl.gear_compress(x, **settings))


def as_rows(x, by):
    """Return a row of tokens for each channel, or a row of all heads' channels for each token."""
    return x.mT if by == "channel" else x.transpose(-3, -2).flatten(-2)


@pytest.mark.ours_only
@given(gear_compress(exact=True))
def test_a_span_is_what_the_definition_gives_one_number_at_a_time(impl, x):
    x |= dict(x=x["x"].double(), scales=None)
    out = restored(impl, **x)
    assert out.shape == x["x"].shape
    if not out.numel():
        return
    layout = x["by"], x["bits"], Fraction(str(x["outliers"])), x["rank"], x["fill"], x["seed"]
    sequences = x["x"].reshape(-1, *out.shape[-3:])
    alone = [oracle.gear(sequence.tolist(), *layout)[0] for sequence in sequences]
    alone = torch.tensor(alone, dtype=torch.float64).reshape(out.shape)
    # relative to the sums over tokens and channels in the correction
    assert_close(out, alone, x["x"].abs().sum())


@given(TALL, SIDES, st.sampled_from([0.25, 0.5, 1.0]), st.integers(1, 3), st.booleans())
def test_outliers_are_stored_exactly_and_moved_by_the_correction_alone(
    impl, x, by, share, rank, fill
):
    settings = dict(by=by, bits=2, outliers=share, fill=fill)
    block, rows = impl.gear_compress(x, rank=rank, **settings), as_rows(x, by)
    apart = impl.outlier_mask(rows, share)
    assert_equal(block.outliers, rows[apart].reshape(block.outliers.shape))
    assert_equal(rows.gather(-1, block.places.long()), block.outliers)
    assert (block.places.long().diff() > 0).all()
    exact = as_rows(impl.gear_reconstruct(block, exact_outliers=True), by)
    assert_equal(exact[apart], rows[apart])
    moved = as_rows(impl.gear_reconstruct(block), by)
    assert_equal(moved[~apart], exact[~apart])
    correction = as_rows(block.left @ block.right.mT, by)
    assert_close(moved[apart], (rows + correction)[apart].double(), x.abs().amax())
    plain = as_rows(restored(impl, x, rank=0, **settings), by)
    assert_equal(plain[apart], rows[apart])


@given(st.integers(1, 8), SIDES, st.booleans())
def test_a_grid_has_two_to_the_bits_levels_with_outliers_too(impl, bits, by, fill):
    levels = torch.arange(2.0**bits)
    # as far below as above, so that the mean is in the range of the others
    row = torch.cat([levels, torch.tensor([-100.0, 100.0 + len(levels) - 1])])
    x = row[None, :, None] if by == "channel" else row[None, None, :]
    share = 3 / len(row)
    block = impl.gear_compress(x, by=by, bits=bits, outliers=share, rank=0, fill=fill)
    codes = impl.unpack_bits(block.words, bits, len(row)).flatten()
    assert codes.tolist() == [*range(2**bits), 0, 0]
    assert block.steps.flatten().tolist() == [1.0]
    assert block.minima.flatten().tolist() == [0.0]


@given(gear_compress(whole=True), st.sampled_from([0, 99]))
def test_a_correction_of_the_errors_whole_rank_mends_everything(impl, x, more):
    x |= dict(x=x["x"].double(), scales=None, rank=x["rank"] + more)
    assert_close(restored(impl, **x), x["x"], x["x"].abs().sum())


def test_the_last_place_of_a_long_row_can_be_counted(impl):
    """In a row of 32 769 members the last place is the first that needs more than two bytes."""
    x = torch.zeros(1, 1, 2**15 + 1)
    x[..., -1], x[..., 0] = 9.0, -1.0
    block = impl.gear_compress(x, by="token", bits=1, outliers=0.0001, rank=0)
    assert block.places.tolist() == [[0, 2**15]]
    assert block.outliers.tolist() == [[-1.0, 9.0]]
