"""One span of a HEX cache, compressed and restored without loops."""

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.hex.compress import HexBlock
from reference.hex.kcvt import bits_of_both, dequantise, group_values, transposed, ungroup_values
from reference.precision import widest


def hex_mask(expander: Tensor, dynamic: Tensor, kv_heads: int) -> Tensor:
    static = expander.unflatten(1, (kv_heads, expander.shape[1] // kv_heads)).movedim(1, 0)
    return static | dynamic[..., None, :, None]


@kernel_on_gpu
def hex_compress(
    keys: Tensor,
    values: Tensor,
    expander: Tensor,
    dynamic: Tensor,
    bits: int,
    value_group: str,
    scales: torch.dtype | None,
) -> HexBlock:
    kept = hex_mask(expander, dynamic, keys.shape[-3])
    by_channel = code("keys", transposed(keys), bits, transposed(kept), scales)
    by_token = code(
        "values", group_values(values, value_group), bits, group_values(kept, value_group), scales
    )
    value_codes = transposed(ungroup_values(by_token.codes, value_group, values.shape[-1]))
    return HexBlock(
        bits,
        pack_bits(by_channel.codes, bits),
        by_channel.steps,
        by_channel.minima,
        pack_bits(value_codes, bits),
        by_token.steps,
        by_token.minima,
        keys[kept],
        values[kept],
        dynamic.clone(),
    )


def restored(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    kv_heads, width = block.key_steps.shape[-2:]
    tokens = block.dynamic.shape[-1]
    kept = hex_mask(expander, block.dynamic, kv_heads)
    value_group = "head" if block.value_steps.ndim == block.key_steps.ndim else "token"
    key_bits, value_bits = bits_of_both(block.bits)
    key_codes = unpack_bits(block.key_words, key_bits, tokens)
    by_channel = dequantise(key_codes, block.key_steps, block.key_minima)
    value_codes = transposed(unpack_bits(block.value_words, value_bits, tokens))
    rows = group_values(value_codes, value_group)
    by_token = ungroup_values(
        dequantise(rows, block.value_steps, block.value_minima), value_group, width
    )
    keys = transposed(by_channel).to(widest(block.key_steps, block.kept_keys))
    values = by_token.to(widest(block.value_steps, block.kept_values))
    keys[kept], values[kept] = block.kept_keys.to(keys.dtype), block.kept_values.to(values.dtype)
    return keys, values


@kernel_on_gpu
def hex_reconstruct(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = restored(block, expander)
    return keys.to(block.kept_keys.dtype), values.to(block.kept_values.dtype)
