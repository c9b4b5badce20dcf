"""Other correct ways to compress and restore a span."""

import torch

import reference
from spec_tests.variants.registry import register_variant


@register_variant("hex_mask")
def by_broadcast(expander, dynamic, kv_heads):
    """Join the masks of tokens and channels by broadcasting, then split the channels into heads."""
    joint = expander | dynamic[..., None]
    return joint.unflatten(-1, (kv_heads, -1)).transpose(-3, -2).contiguous()


@register_variant("hex_compress")
def head_by_head(keys, values, expander, dynamic, bits=3, value_group="token", scales=None):
    """Quantise each head's keys; quantise values of all heads together, or of each head."""
    kept = by_broadcast(expander, dynamic, keys.shape[-3])
    each = [
        reference.quantise(keys[..., h, :, :].mT, bits, kept[..., h, :, :].mT, scales)
        for h in range(keys.shape[-3])
    ]
    key_codes, key_steps, key_minima = (
        torch.stack(parts, axis)
        for parts, axis in zip(zip(*each, strict=True), (-3, -2, -2), strict=True)
    )
    if value_group == "token":
        rows, aside = (x.transpose(-3, -2).flatten(-2) for x in (values, kept))
        value_codes, value_steps, value_minima = reference.quantise(rows, bits, aside, scales)
        value_codes = value_codes.unflatten(-1, (values.shape[-3], -1)).transpose(-3, -2)
    else:
        value_codes, value_steps, value_minima = reference.quantise(values, bits, kept, scales)
    return reference.HexBlock(
        bits, reference.pack_bits(key_codes, bits), key_steps, key_minima,
        reference.pack_bits(value_codes.mT, bits), value_steps, value_minima,
        keys.masked_select(kept), values.masked_select(kept), dynamic.clone(),
    )  # fmt: skip


@register_variant("hex_reconstruct")
def by_scatter(block, expander):
    """Restore all codes, and overwrite them with the kept entries."""
    kept = by_broadcast(expander, block.dynamic, block.key_steps.shape[-2])
    tokens = block.dynamic.shape[-1]
    codes = reference.unpack_bits(block.key_words, block.bits, tokens)
    keys = reference.dequantise(codes, block.key_steps, block.key_minima).mT
    codes = reference.unpack_bits(block.value_words, block.bits, tokens).mT
    steps, minima = block.value_steps, block.value_minima
    if steps.ndim < codes.ndim - 1:  # one group a token, for all heads
        steps, minima = (x[..., None, :].expand(codes.shape[:-1]) for x in (steps, minima))
    values = reference.dequantise(codes, steps, minima)
    return tuple(
        part.to(exact.dtype).masked_scatter(kept, exact)
        for part, exact in ((keys, block.kept_keys), (values, block.kept_values))
    )
