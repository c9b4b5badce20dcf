"""Lies about packed codes."""

from spec_tests.mutants.make import lies

lie = lies("hex/packing")
lie("""
test_packed_codes_waste_less_than_a_word_a_row
  nibbles: codes of 3 bits take 4
  -     *rows, length = codes.shape
  +     *rows, length, bits = *codes.shape, 2 ** (bits - 1).bit_length()
test_unpacking_returns_what_was_packed
  arithmetic_shift: the sign is dragged along
  - stream[..., j::32] = (words >> j) % 2
  + stream[..., j::32] = (words >> j).fmod(2)
""")
