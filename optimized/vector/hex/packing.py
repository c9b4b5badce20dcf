"""Bit packing without loops."""

import torch
import torch.nn.functional as F
from torch import Tensor


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    places = torch.arange(bits, dtype=torch.uint8, device=codes.device)
    stream = ((codes[..., None] >> places) & 1).flatten(-2)
    stream = F.pad(stream, (0, -stream.shape[-1] % 32)).unflatten(-1, (-1, 32)).int()
    # the sum wraps into the sign: bit 31 is worth -2**31
    return (stream << torch.arange(32, dtype=torch.int32, device=codes.device)).sum(
        -1, dtype=torch.int32
    )


def unpack_bits(words: Tensor, bits: int, length: int) -> Tensor:
    places = torch.arange(32, dtype=torch.int32, device=words.device)
    stream = ((words[..., None] >> places) & 1).to(torch.uint8).flatten(-2)
    codes = stream[..., : length * bits].unflatten(-1, (length, bits))
    places = torch.arange(bits, dtype=torch.uint8, device=words.device)
    return (codes << places).sum(-1, dtype=torch.uint8)
