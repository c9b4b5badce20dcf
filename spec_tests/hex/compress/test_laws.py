"""A span stored partly in full precision and partly as codes: HEX §3.1 and §3.5."""

import pytest
import torch
from hypothesis import example, given

import reference
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.inputs import INPUTS

numbers = torch.arange(8.0).view(1, 2, 4)
FAR_OUT = dict(
    keys=numbers, values=numbers.where(numbers != 2, 100), expander=(numbers == 2)[0],
    dynamic=torch.zeros(2, dtype=torch.bool), bits=2, value_group="token", scales=torch.float32,
)  # fmt: skip
"""A span with one kept entry, far above all others of its token."""


@pytest.mark.spec("HEX-3.5a")
@given(INPUTS["hex_mask"])
def test_an_entry_is_kept_if_either_mask_says_so(impl, x):
    kept = impl.hex_mask(**x)
    matrix = kept.transpose(-3, -2).flatten(-2)
    assert_equal(matrix, x["expander"] | x["dynamic"][..., None])


@pytest.mark.spec("HEX-3.1c", "HEX-3.5a")
@given(INPUTS["hex_compress"])
@example(FAR_OUT)
def test_what_is_restored_is_kcvt_of_the_remaining_entries(impl, x):
    kept = reference.hex_mask(x["expander"], x["dynamic"], x["keys"].shape[-3])
    expected = impl.kcvt(x["keys"], x["values"], x["bits"], kept, x["value_group"], x["scales"])
    found = impl.hex_reconstruct(impl.hex_compress(**x), x["expander"])
    for restored, exact, name in zip(found, expected, ("keys", "values"), strict=True):
        assert_equal(restored[kept], x[name][kept])
        # a product and a sum, rounded once or twice
        assert_close(restored, exact, 2 * x[name].abs().max() if x[name].numel() else 0.0)


@pytest.mark.spec("HEX-3.1c")
@given(INPUTS["hex_compress"])
def test_a_block_holds_no_more_than_its_parts(impl, x):
    block = impl.hex_compress(**x)
    parts = [part for part in block if isinstance(part, torch.Tensor)]
    assert reference.stored_bytes(block) == sum(part.nbytes for part in parts)
    storages = {part.untyped_storage().data_ptr() for part in parts if part.numel()}
    assert x["keys"].untyped_storage().data_ptr() not in storages
    assert x["dynamic"].untyped_storage().data_ptr() not in storages


@pytest.mark.spec("HEX-3.5a")
@given(INPUTS["hex_compress"])
def test_codes_under_kept_entries_are_zero(impl, x):
    block = impl.hex_compress(**x)
    kept = reference.hex_mask(x["expander"], x["dynamic"], x["keys"].shape[-3])
    for words in (block.key_words, block.value_words):
        codes = impl.unpack_bits(words, block.bits, x["keys"].shape[-2]).mT
        assert (codes[kept] == 0).all()
