"""Mutants of HEX's masks and compressed blocks."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/compress")
mutant("""
test_an_entry_is_kept_if_either_mask_says_so
  joined_by_and: an entry is kept only if both masks are true
  - static | dynamic[..., None]
  + static & dynamic[..., None]
test_what_is_restored_is_kcvt_of_the_remaining_entries
  static_only: the dynamic mask is ignored
  +     dynamic = dynamic & False
        kept = hex_mask(expander, dynamic, keys.shape[-3])
test_a_block_holds_no_more_than_its_parts
  view_of_the_original: a block keeps a view of the uncompressed keys
  -         keys[kept],
  +         torch.cat([keys[kept], keys.flatten()])[: int(kept.sum())],
test_codes_under_kept_entries_are_zero
  codes_under_kept: codes of kept entries are not 0
  - pack_bits(by_channel.codes, bits)
  + pack_bits(by_channel.codes.masked_fill(transposed(kept), 2**bits - 1), bits)
""")
