"""Mutants of packed codes."""

from spec_tests.mutants.registry import register_mutants

mutant = register_mutants("hex/packing")
mutant("""
vector:four-bits-as-kivi-packs-them
  highest_bit_first: a word is filled from its highest bit
  -     # bit 31 is the sign of a 32-bit word
  +     words = sum(2 ** (31 - j) * (words >> j & 1) for j in range(32))
test_packed_codes_waste_less_than_a_word_a_row
  nibbles: codes of 3 bits take 4 bits
  - length = codes.shape[-1]
  + length, bits = codes.shape[-1], 2 ** (bits - 1).bit_length()
test_unpacking_returns_what_was_packed
  arithmetic_shift: the shift copies the sign bit
  - ((numbers[..., None] >> places) % 2)
  + (numbers[..., None] >> places).fmod(2)
""")
