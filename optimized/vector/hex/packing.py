"""Bit packing without loops: eight codes fill whole bytes, and fit into one int64."""

import torch
import torch.nn.functional as F
from torch import Tensor

from reference.hex.packing import word_count


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    *rows, length = codes.shape
    groups, count = -(-length // 8), word_count(length, bits)
    if 8 % bits == 0 and codes.numel():  # no code crosses a byte
        stream = F.pad(codes, (0, count * 32 // bits - length)).flatten()
        while bits < 8:
            pairs = stream.view(torch.int16)  # little-endian
            stream, bits = (pairs | pairs >> 8 - bits).byte(), 2 * bits
        return stream.view(torch.int32).view(*rows, count)
    places = bits * torch.arange(8, device=codes.device)
    eights = F.pad(codes, (0, 8 * groups - length)).unflatten(-1, (groups, 8)).long()
    # the eighth code of 8 bits reaches the sign bit; bytes are little-endian
    numbers = eights.bitwise_left_shift_(places).sum(-1, keepdim=True)
    stream = numbers.view(torch.uint8)[..., :bits].flatten(-2)
    stream = F.pad(stream, (0, 4 * count - stream.shape[-1]))
    return stream.flatten().view(torch.int32).view(*rows, count)


def unpack_bits(words: Tensor, bits: int, length: int) -> Tensor:
    if 8 % bits == 0:  # no code crosses a byte
        stream = as_bytes(words)
        stream = stream.clone() if bits == 8 else stream
        for width in (4, 2, 1):
            stream = halves(stream, width) if bits <= width else stream
        return stream[..., :length]
    groups = -(-length // 8)
    places = bits * torch.arange(8, device=words.device)
    stream = F.pad(as_bytes(words), (0, groups * bits - 4 * words.shape[-1]))
    numbers = F.pad(stream.unflatten(-1, (groups, bits)), (0, 8 - bits)).view(torch.int64)
    codes = (numbers >> places).to(torch.uint8).bitwise_and_(2**bits - 1)
    return codes.flatten(-2)[..., :length]


def halves(stream: Tensor, bits: int) -> Tensor:
    """Return the lower `bits` of each number, then its upper `bits`, interleaved."""
    return torch.stack([stream.bitwise_and(2**bits - 1), stream >> bits], -1).flatten(-2)


def as_bytes(words: Tensor) -> Tensor:
    """Return words as bytes, little-endian."""
    # the last axis may have another stride, as one of length 1 does
    whole = words if words.stride(-1) == 1 else words.clone(memory_format=torch.contiguous_format)
    return whole.view(torch.uint8)
