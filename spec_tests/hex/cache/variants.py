"""Other correct ways to fill a streaming cache: one token at a time, without helpers."""

# pyright: reportCallIssue=false

import torch

import reference
from spec_tests.variants.registry import register_variant


def static(config, tokens, channels):
    """Return the mask of a cache's seed."""
    if config.density in (0.0, 1.0):
        return torch.full((tokens, channels), bool(config.density))
    how = config.density, config.seed, config.near, config.tile, config.block
    return reference.expander_mask(tokens, channels, *how)


def compressed(config, keys, values, mass, seen, first):
    """Compress a span whose first token was seen by `seen` queries."""
    kv_heads, tokens, width = keys.shape[-3:]
    if config.normalize:
        mass = mass / (seen - torch.arange(tokens))
    windowed = not config.carry_recent and (first or config.recent_per_block)
    recent = config.recent if windowed else 0
    dynamic = reference.h2o_mask(mass, config.heavy, recent, config.outside_recent)
    mask = static(config, tokens, kv_heads * width)
    settings = config.bits, config.value_group, config.scales
    return reference.hex_compress(keys, values, mask, dynamic, *settings)


def moved(cache, blocks, size):
    """Move the oldest tokens from the buffer into the given blocks."""
    keys, values, mass = cache.residual_keys, cache.residual_values, cache.residual_mass
    config, originals = cache.config, (cache.original_keys, cache.original_values)
    remembered = cache.mass
    if config.mode != "append":
        remembered = torch.cat([remembered, mass[..., :size]], -1)
    if config.mode == "oracle":
        new = keys[..., :size, :], values[..., :size, :]
        originals = [torch.cat(pair, -2) for pair in zip(originals, new, strict=True)]
    rest = keys[..., size:, :].clone(), values[..., size:, :].clone(), mass[..., size:].clone()
    return reference.HexCache(config, blocks, *rest, remembered, *originals)


def as_one(cache, size):
    """Compress all blocks and the oldest tokens of the buffer as one span."""
    held = reference.hex_read(cache)
    if cache.config.mode == "oracle":
        rest = cache.residual_keys, cache.residual_values
        old = cache.original_keys, cache.original_values
        held = [torch.cat(pair, -2) for pair in zip(old, rest, strict=True)]
    mass = torch.cat([cache.mass, cache.residual_mass], -1)
    tokens = cache.mass.shape[-1] + size
    span = [x[..., :tokens, :] for x in held]
    block = compressed(cache.config, *span, mass[..., :tokens], mass.shape[-1], True)
    return moved(cache, (block,), size)


@register_variant("hex_recompress")
def at_once(cache):
    """Compress the restored entries, or the originals, as one span."""
    return as_one(cache, 0) if cache.blocks else cache
