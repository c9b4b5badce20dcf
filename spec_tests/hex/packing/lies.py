"""Lies about packed codes."""

import torch

import reference
from spec_tests.mutants.make import lies, mutant

lie = lies("hex/packing")

lie(
    "nibbles",
    "codes of 3 bits take 4",
    "length = codes.shape[-1]\n",
    "length, bits = codes.shape[-1], 2 ** (bits - 1).bit_length()\n",
    "test_packed_codes_waste_less_than_a_word_a_row",
)


@mutant(
    "unpack_bits",
    "the sign is dragged along",
    killer="hex/packing/test_laws.py::test_unpacking_returns_what_was_packed",
)
def arithmetic_shift(words, bits, length):
    """Shift signed words, and mask only where a code lies within one."""
    codes = reference.unpack_bits(words, bits, length)
    for i in range(length):
        word, place = divmod(bits * i, 32)
        if place + bits > 32:
            spread = (words[..., word] >> place).to(torch.uint8)
            codes[..., i] |= spread & (2**bits - 1)
    return codes
