"""One span of a HEX cache, compressed and restored without loops."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector.kcvt import (
    code,
    dequantise,
    group_tokens,
    pack_bits,
    round_to,
    split_heads,
    unpack_bits,
)
from reference import errors
from reference.hex import cache_errors as refuse
from reference.hex.compress import HexBlock


def hex_mask(
    expander: Bool[Tensor, "tokens channels"],
    dynamic: Bool[Tensor, "*batch tokens"],
    kv_heads: int,
) -> Bool[Tensor, "*batch kv_heads tokens width"]:
    refuse.masks(expander, dynamic, kv_heads)
    width = expander.shape[1] // kv_heads
    static = expander.unflatten(1, (kv_heads, width)).movedim(1, 0)
    return static | dynamic[..., None, :, None]


def hex_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    expander: Bool[Tensor, "tokens channels"],
    dynamic: Bool[Tensor, "*batch tokens"],
    bits: int = 3,
    value_group: str = "token",
    scales: torch.dtype | None = None,
) -> HexBlock:
    refuse.span(keys, values, expander, dynamic)
    refuse.value_group("value_group", value_group)
    kept = hex_mask(expander, dynamic, keys.shape[-3])
    channels = code("keys", keys.mT, bits, kept.mT, scales)
    rows = code(
        "values", group_tokens(values, value_group), bits, group_tokens(kept, value_group), scales
    )
    value_codes = split_heads(rows.codes, value_group, *values.shape[-3::2]).mT
    return HexBlock(
        bits=bits,
        key_words=pack_bits(channels.codes, bits),
        key_steps=channels.steps,
        key_minima=channels.minima,
        value_words=pack_bits(value_codes, bits),
        value_steps=rows.steps,
        value_minima=rows.minima,
        kept_keys=keys[kept],
        kept_values=values[kept],
        dynamic=dynamic.clone(),
    )


def hex_reconstruct(
    block: HexBlock, expander: Bool[Tensor, "tokens channels"]
) -> tuple[
    Float[Tensor, "*batch kv_heads tokens width"], Float[Tensor, "*batch kv_heads tokens width"]
]:
    refuse.instance("block", block, HexBlock)
    kv_heads, width = block.key_steps.shape[-2:]
    tokens = block.dynamic.shape[-1]
    errors.boolean("expander", expander, (tokens, kv_heads * width))
    kept = hex_mask(expander, block.dynamic, kv_heads)
    refuse.entries("expander", kept, block.kept_keys)
    value_group = "head" if block.value_steps.ndim == block.key_steps.ndim else "token"
    key_codes = unpack_bits(block.key_words, block.bits, tokens)
    value_codes = group_tokens(unpack_bits(block.value_words, block.bits, tokens).mT, value_group)
    keys = dequantise(key_codes, block.key_steps, block.key_minima).mT
    values = dequantise(value_codes, block.value_steps, block.value_minima)
    values = split_heads(values, value_group, kv_heads, width)
    return (
        round_to(keys, block.kept_keys.dtype).masked_scatter(kept, block.kept_keys),
        round_to(values, block.kept_values.dtype).masked_scatter(kept, block.kept_values),
    )
