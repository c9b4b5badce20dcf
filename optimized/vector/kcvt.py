"""KCVT quantisation and bit packing without loops."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int32, UInt8
from torch import Tensor

from reference import errors
from reference.hex import cache_errors as refuse
from reference.hex.kcvt import Quantised
from reference.hex.kcvt import dequantise as dequantise  # already elementwise
from reference.precision import widen


def quantise(
    x: Float[Tensor, "*groups members"],
    bits: int,
    kept: Bool[Tensor, "*groups members"] | None = None,
    scales: torch.dtype | None = None,
) -> Quantised:
    errors.floating("x", x)
    errors.finite("x", x)
    if kept is None:
        kept = torch.zeros_like(x, dtype=torch.bool)
    errors.boolean("kept", kept, x.shape)
    return code("x", x, bits, kept, scales)


def code(name: str, x: Tensor, bits: int, kept: Tensor, scales: torch.dtype | None) -> Quantised:
    errors.whole("bits", bits, 1, 8)
    errors.one_of("scales", scales, (None, torch.float16, torch.float32))
    wide, top = widen(x), 2**bits - 1
    stored = scales or (x.dtype if x.dtype == torch.float16 else wide.dtype)
    # a group without members has minimum and step 0
    empty = kept.all(-1)
    low = F.pad(wide.masked_fill(kept, torch.inf), (0, 1), value=torch.inf).amin(-1)
    high = F.pad(wide.masked_fill(kept, -torch.inf), (0, 1), value=-torch.inf).amax(-1)
    low, high = low.masked_fill(empty, 0), high.masked_fill(empty, 0)
    step = (high - low) / top
    refuse.storable(name, torch.stack([low, step], -1), stored)
    minima, steps = low.to(stored), step.to(stored)
    low, step = minima.to(wide.dtype)[..., None], steps.to(wide.dtype)[..., None]
    codes = ((wide - low) / step).round().clamp(0, top)
    return Quantised(codes.masked_fill(kept | (step == 0), 0).to(torch.uint8), steps, minima)


def kcvt(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    bits: int = 3,
    kept: Bool[Tensor, "*batch kv_heads tokens width"] | None = None,
    value_group: str = "token",
    scales: torch.dtype | None = None,
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    refuse.cache(keys, values)
    refuse.value_group("value_group", value_group)
    if kept is None:
        kept = torch.zeros_like(keys, dtype=torch.bool)
    errors.boolean("kept", kept, keys.shape)
    by_channel = dequantise(*code("keys", keys.mT, bits, kept.mT, scales)).mT
    rows, kept_rows = group_tokens(values, value_group), group_tokens(kept, value_group)
    by_token = dequantise(*code("values", rows, bits, kept_rows, scales))
    by_token = split_heads(by_token, value_group, *values.shape[-3::2])
    restored = round_to(by_channel, keys.dtype), round_to(by_token, values.dtype)
    return torch.where(kept, keys, restored[0]), torch.where(kept, values, restored[1])


def group_tokens(x: Tensor, value_group: str) -> Tensor:
    return x if value_group == "head" else x.movedim(-3, -2).flatten(-2)


def split_heads(x: Tensor, value_group: str, kv_heads: int, width: int) -> Tensor:
    return x if value_group == "head" else x.unflatten(-1, (kv_heads, width)).movedim(-2, -3)


def round_to(x: Tensor, dtype: torch.dtype) -> Tensor:
    limit = min(torch.finfo(dtype).max, torch.finfo(x.dtype).max)
    return x.clamp(-limit, limit).to(dtype)


def pack_bits(codes: UInt8[Tensor, "*rows length"], bits: int) -> Int32[Tensor, "*rows words"]:
    errors.whole("bits", bits, 1, 8)
    refuse.codes("codes", codes, 2**bits - 1)
    places = torch.arange(bits, dtype=torch.uint8, device=codes.device)
    stream = ((codes[..., None] >> places) & 1).flatten(-2)
    stream = F.pad(stream, (0, -stream.shape[-1] % 32)).unflatten(-1, (-1, 32)).int()
    # the sum wraps into the sign: bit 31 is worth -2**31
    return (stream << torch.arange(32, dtype=torch.int32, device=codes.device)).sum(
        -1, dtype=torch.int32
    )


def unpack_bits(
    words: Int32[Tensor, "*rows words"], bits: int, length: int
) -> UInt8[Tensor, "*rows length"]:
    errors.whole("bits", bits, 1, 8)
    errors.whole("length", length)
    refuse.words("words", words, -(-length * bits // 32))
    places = torch.arange(32, dtype=torch.int32, device=words.device)
    stream = ((words[..., None] >> places) & 1).to(torch.uint8).flatten(-2)
    codes = stream[..., : length * bits].unflatten(-1, (length, bits))
    places = torch.arange(bits, dtype=torch.uint8, device=words.device)
    return (codes << places).sum(-1, dtype=torch.uint8)
