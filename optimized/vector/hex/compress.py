"""One span of a HEX cache, compressed and restored without loops."""

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.hex.compress import HexBlock
from reference.hex.kcvt import bits_of_both, group_values, transposed, ungroup_values
from reference.precision import widen, widest


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
    tokens = block.dynamic.shape[-1]
    kept = hex_mask(expander, block.dynamic, block.key_steps.shape[-2])
    key_bits, value_bits = bits_of_both(block.bits)
    columns = (x[..., None, :] for x in (block.key_steps, block.key_minima))
    shared = block.value_steps.ndim < block.key_steps.ndim
    scales = block.value_steps, block.value_minima
    rows = (x[..., None, :, None] if shared else x[..., None] for x in scales)
    keys = numbers(unpack_bits(block.key_words, key_bits, tokens).mT, *columns)
    values = numbers(unpack_bits(block.value_words, value_bits, tokens).mT, *rows)
    keys = keys.to(widest(block.key_steps, block.kept_keys))
    values = values.to(widest(block.value_steps, block.kept_values))
    return (
        keys.masked_scatter_(kept, block.kept_keys.to(keys.dtype)),
        values.masked_scatter_(kept, block.kept_values.to(values.dtype)),
    )


def numbers(codes: Tensor, steps: Tensor, minima: Tensor) -> Tensor:
    """Return what codes stand for; steps and minima broadcast to them.

    Codes are laid out in order first, since a byte is moved faster than its number.
    """
    steps = widen(steps)
    return (codes.contiguous().to(steps.dtype) * steps).add_(widen(minima))


@kernel_on_gpu
def hex_reconstruct(block: HexBlock, expander: Tensor) -> tuple[Tensor, Tensor]:
    keys, values = restored(block, expander)
    return keys.to(block.kept_keys.dtype), values.to(block.kept_values.dtype)
