"""Lies about packed codes."""

from spec_tests.mutants.make import lies

lie = lies("hex/packing")

lie(
    "nibbles",
    "codes of 3 bits take 4",
    "length = codes.shape[-1]\n",
    "length, bits = codes.shape[-1], 2 ** (bits - 1).bit_length()\n",
    "test_packed_codes_waste_less_than_a_word_a_row",
)
lie(
    "arithmetic_shift",
    "the sign is dragged along",
    "word, place = divmod(bits * i + j, 32)\n            codes",
    "word, place = bits * i // 32, min(31, bits * i % 32 + j)\n            codes",
    "test_unpacking_returns_what_was_packed",
)
