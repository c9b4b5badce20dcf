"""Other correct ways to fill a streaming cache: one token at a time, without helpers."""

# pyright: reportCallIssue=false

import torch
import torch.nn.functional as F

import reference
from spec_tests.hex.attention.variants import read_in_widest_dtype
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


@register_variant("hex_prefill")
def buffered(queries, keys, values, config):
    """Put the whole prompt into the buffer, then compress its blocks as one span."""
    held = config.recent if config.carry_recent else 0
    tokens = max(0, keys.shape[-2] - held) // config.block * config.block
    own = reference.attention_mass(queries[..., :tokens, :], keys[..., :tokens, :])
    later = reference.attention_mass(queries[..., tokens:, :], keys)
    mass = F.pad(own, (0, keys.shape[-2] - tokens)) + later
    # a view would keep the whole prompt in memory (C10)
    none = mass[..., :0].clone(), keys[..., :0, :].clone(), values[..., :0, :].clone()
    cache = reference.HexCache(config, (), keys, values, mass, *none)
    blocks = ()
    if tokens:
        span = keys[..., :tokens, :], values[..., :tokens, :]
        blocks = (compressed(config, *span, own, tokens, True),)
    return moved(cache, blocks, tokens)


@register_variant("hex_append")
def token_by_token(cache, queries, keys, values):
    """Add one token at a time, add its query's mass to all tokens, and compress a full buffer."""
    config = cache.config
    held = config.recent if config.carry_recent else 0
    for t in range(keys.shape[-2]):
        query, key, value = (x[..., t : t + 1, :] for x in (queries, keys, values))
        cache = cache._replace(
            residual_keys=torch.cat([cache.residual_keys, key], -2),
            residual_values=torch.cat([cache.residual_values, value], -2),
            residual_mass=F.pad(cache.residual_mass, (0, 1)),
        )
        drawn = reference.attention_mass(query, read_in_widest_dtype(cache)[0])
        residual = cache.residual_keys.shape[-2]
        before = drawn.shape[-1] - residual
        cache = cache._replace(
            residual_mass=cache.residual_mass + drawn[..., before:],
            mass=cache.mass if config.mode == "append" else cache.mass + drawn[..., :before],
        )
        if residual < config.block + held:
            continue
        if config.mode == "append" or len(cache.blocks) < config.period:
            size, mass = config.block, cache.residual_mass
            span = cache.residual_keys[..., :size, :], cache.residual_values[..., :size, :]
            first = not cache.blocks
            block = compressed(config, *span, mass[..., :size], mass.shape[-1], first)
            cache = moved(cache, (*cache.blocks, block), size)
        else:
            cache = as_one(cache, config.block)
    return cache


@register_variant("hex_recompress")
def at_once(cache):
    """Compress the restored entries, or the originals, as one span."""
    return as_one(cache, 0) if cache.blocks else cache


@register_variant("hex_read")
def span_by_span(cache):
    """Write each span at its place among all tokens."""
    sizes = [block.dynamic.shape[-1] for block in cache.blocks]
    residual = cache.residual_keys.shape[-2]
    shape = list(cache.residual_keys.shape)
    shape[-2] = sum(sizes) + residual
    keys, values = cache.residual_keys.new_empty(shape), cache.residual_values.new_empty(shape)
    start = 0
    for block, size in zip(cache.blocks, sizes, strict=True):
        span = reference.hex_reconstruct(block, static(cache.config, size, shape[-3] * shape[-1]))
        for out, restored in zip((keys, values), span, strict=True):
            out[..., start : start + size, :] = restored
        start += size
    keys[..., start:, :], values[..., start:, :] = cache.residual_keys, cache.residual_values
    return keys, values
