"""Other correct ways to pack codes."""

import numpy as np
import torch

from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("pack_bits")
def into_whole_numbers(codes, bits):
    """Make one long integer of each row, and cut it into words."""
    *rows, length = codes.shape
    count = -(-length * bits // 32)
    words = torch.zeros(*rows, count, dtype=torch.int32)
    for row in np.ndindex(*rows):
        number = sum(code << bits * i for i, code in enumerate(codes[row].tolist()))
        for k in range(count):
            word = number >> 32 * k & 0xFFFFFFFF
            words[(*row, k)] = word - 2**32 if word >= 2**31 else word
    return words.to(codes.device)


@register_variant("pack_bits")
@among_tensors
def by_packbits(codes, bits):
    """Unpack each code into bits with NumPy, and pack the stream of bits."""
    *rows, length = codes.shape
    stream = np.unpackbits(codes[..., None], axis=-1, count=bits, bitorder="little")
    stream = stream.reshape(*rows, length * bits)
    missing = -(length * bits) % 32
    stream = np.pad(stream, [(0, 0)] * len(rows) + [(0, missing)])
    return np.packbits(stream, axis=-1, bitorder="little").view("<i4")


@register_variant("unpack_bits")
def by_two_words(words, bits, length):
    """Read each code from the word where it starts, and from the next one if it continues there."""
    start = bits * torch.arange(length, device=words.device)
    unsigned = words.long() & 0xFFFFFFFF
    unsigned = torch.cat([unsigned, unsigned.new_zeros(*words.shape[:-1], 1)], -1)
    low, high = unsigned[..., start // 32], unsigned[..., start // 32 + 1]
    return ((low | high << 32) >> start % 32 & 2**bits - 1).to(torch.uint8)


@register_variant("unpack_bits")
@among_tensors
def by_unpackbits(words, bits, length):
    """Unpack the words into bits with NumPy, and pack the bits of each code."""
    stream = np.ascontiguousarray(words).astype("<i4").view(np.uint8)
    stream = np.unpackbits(stream, axis=-1, count=length * bits, bitorder="little")
    stream = stream.reshape(*words.shape[:-1], length, bits)
    codes = np.packbits(stream, axis=-1, bitorder="little")
    return codes[..., 0] if codes.size else np.zeros(codes.shape[:-1], np.uint8)
