"""Dense bit streams: HEX §3.4."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_equal
from spec_tests.inputs import INPUTS

pytestmark = pytest.mark.spec("HEX-3.4a")


@given(INPUTS["pack_bits"])
def test_unpacking_returns_what_was_packed(impl, x):
    words = impl.pack_bits(**x)
    assert_equal(impl.unpack_bits(words, x["bits"], x["codes"].shape[-1]), x["codes"])


@given(st.integers(1, 8), st.integers(0, 200))
def test_packed_codes_waste_less_than_a_word_a_row(impl, bits, length):
    codes = torch.zeros(3, length, dtype=torch.uint8)
    words = impl.pack_bits(codes, bits)
    assert words.dtype == torch.int32
    assert 0 <= 32 * words.shape[-1] - bits * length < 32
