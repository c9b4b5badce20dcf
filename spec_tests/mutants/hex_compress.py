"""Mutants of HEX's masks and compressed blocks."""

import torch

import reference
from spec_tests.mutants.make import mutant


@mutant(
    "hex_mask",
    "both masks must agree",
    killer="hex/test_compress.py::test_an_entry_is_kept_if_either_mask_says_so",
)
def joined_by_and(expander, dynamic, kv_heads):
    """Join by AND."""
    static = reference.hex_mask(expander, dynamic & False, kv_heads)
    return static & dynamic[..., None, :, None]


@mutant(
    "hex_compress",
    "the dynamic mask is forgotten",
    killer="hex/test_compress.py::test_all_ones_masks_restore_everything_exactly",
)
def static_only(keys, values, expander, dynamic, bits=3, value_group="token", scales=None):
    """Keep the expander's entries alone."""
    return reference.hex_compress(
        keys, values, expander, dynamic & False, bits, value_group, scales
    )


@mutant(
    "hex_compress",
    "a block holds on to the uncompressed keys",
    killer="hex/test_compress.py::test_a_block_holds_no_more_than_its_parts",
)
def view_of_the_original(keys, values, expander, dynamic, bits=3, value_group="token", scales=None):
    """Store a view where a copy belongs."""
    block = reference.hex_compress(keys, values, expander, dynamic, bits, value_group, scales)
    whole = torch.cat([block.kept_keys, keys.flatten()])
    return block._replace(kept_keys=whole[: block.kept_keys.numel()])


@mutant(
    "hex_compress",
    "kept entries leave their codes behind",
    killer="hex/test_compress.py::test_codes_under_kept_entries_are_zero",
)
def codes_under_kept(keys, values, expander, dynamic, bits=3, value_group="token", scales=None):
    """Write a code under every entry."""
    block = reference.hex_compress(keys, values, expander, dynamic, bits, value_group, scales)
    length = keys.shape[-2]
    full = torch.full_like(keys.mT, 2**bits - 1, dtype=torch.uint8)
    kept = reference.hex_mask(expander, dynamic, keys.shape[-3]).mT
    codes = reference.unpack_bits(block.key_words, bits, length)
    return block._replace(key_words=reference.pack_bits(torch.where(kept, full, codes), bits))
