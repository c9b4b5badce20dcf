"""Bit packing without loops, a byte for each bit on the way."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    places = torch.arange(8, dtype=torch.uint8, device=codes.device)
    stream = (codes[..., None] >> places[:bits]).bitwise_and_(1).flatten(-2)
    stream = F.pad(stream, (0, -stream.shape[-1] % 32)).unflatten(-1, (-1, 8))
    # the lowest byte of a word comes first
    words = stream.mul_(1 << places).sum(-1, dtype=torch.uint8).flatten().view(torch.int32)
    return words.view(*codes.shape[:-1], stream.shape[-2] // 4)


def unpack_bits(words: Tensor, bits: int, length: int) -> Tensor:
    places = torch.arange(8, dtype=torch.uint8, device=words.device)
    stream = ((as_bytes(words)[..., None] >> places) & 1).flatten(-2)
    codes = stream[..., : length * bits].unflatten(-1, (length, bits))
    return (codes << places[:bits]).sum(-1, dtype=torch.uint8)


def as_bytes(words: Tensor) -> Tensor:
    """View words as bytes, the lowest of each first."""
    # an axis of one word may have any stride
    whole = words if words.stride(-1) == 1 else words.clone(memory_format=torch.contiguous_format)
    return whole.view(torch.uint8)
