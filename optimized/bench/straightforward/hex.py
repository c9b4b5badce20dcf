"""Plain ways to HEX: the marks, the codes, and attention over what is stored."""

from functools import cache
from operator import itemgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.attention import SHAPE, attention_weights
from optimized.bench.straightforward.rows import (
    KV_HEADS,
    QUERY_HEADS,
    WIDTH,
    Inputs,
    importance,
    last_queries,
    layer,
    normal,
    row,
)

BITS = 4
LAYER = "8 key heads of 128, {} tokens, 4 bits"


@row(last_queries(256), SHAPE + "256 queries")
def attention_mass(queries: Tensor, keys: Tensor) -> Tensor:
    """Sum the weights over heads and queries."""
    return attention_weights(queries, keys).sum((1, 2))


def quantise(x: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Round to a grid between the least and the largest."""
    low, high = x.float().aminmax(dim=-1)
    steps = (high - low) / (2**bits - 1)
    codes = ((x.float() - low[..., None]) / steps[..., None]).round_().to(torch.uint8)
    return codes, steps, low


def dequantise(codes: Tensor, steps: Tensor, minima: Tensor) -> Tensor:
    """Multiply and add."""
    return torch.addcmul(minima[..., None], codes, steps[..., None])


@row(lambda tokens, dtype: layer(tokens, dtype) | dict(bits=BITS), LAYER)
def kcvt(keys: Tensor, values: Tensor, bits: int) -> tuple[Tensor, Tensor]:
    """Quantise keys by channel and values by token, and restore both."""
    by_channel = dequantise(*quantise(keys.mT, bits)).mT.to(keys.dtype)
    by_token = dequantise(*quantise(values.movedim(1, 2).flatten(2), bits)).to(values.dtype)
    return by_channel, by_token.unflatten(-1, (KV_HEADS, WIDTH)).movedim(2, 1)


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """Put two codes into a byte, and read four bytes as a word."""
    halves = codes.unflatten(-1, (-1, 8 // bits))
    return (halves[..., 0] | halves[..., 1] << bits).view(torch.int32)


def unpack_bits(words: Tensor, bits: int, length: int) -> Tensor:
    """Read words as bytes, and take both halves of each."""
    halves = words.contiguous().view(torch.uint8)
    return torch.stack([halves & 15, halves >> bits], -1).flatten(-2)[..., :length]


def joined(expander: Tensor, dynamic: Tensor) -> Tensor:
    """Join both masks."""
    static = expander.unflatten(1, (KV_HEADS, -1)).movedim(1, 0)
    return static | dynamic[..., None, :, None]


def to_compress(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a layer, a static mask of 32 channels a token, and a dynamic one of two percent."""
    channels = (7 * torch.arange(tokens)[:, None] + 31 * torch.arange(32)) % 1024
    masks = dict(
        expander=kv.biadjacency(channels, 1024), dynamic=kv.h2o_mask(importance(3, 1, tokens))
    )
    return layer(tokens, dtype) | masks | dict(bits=BITS)


def codes_between(x: Tensor, kept: Tensor, bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """Quantise what is not kept; the code of a kept entry is 0."""
    low = x.float().masked_fill(kept, torch.inf).amin(-1)
    steps = (x.float().masked_fill(kept, -torch.inf).amax(-1) - low) / (2**bits - 1)
    low, steps = (torch.where(kept.all(-1), 0, part) for part in (low, steps))
    codes = ((x.float() - low[..., None]) / steps[..., None]).round_().clamp_(0, 2**bits - 1)
    return codes.to(torch.uint8).masked_fill_(kept, 0), steps, low


@row(to_compress, LAYER, compared=lambda block: block[1:])
def hex_compress(
    keys: Tensor, values: Tensor, expander: Tensor, dynamic: Tensor, bits: int
) -> tuple[Tensor, ...]:
    """Quantise keys by channel and values by token but for the kept entries, and pack."""
    kept = joined(expander, dynamic)
    key_codes, *key_scales = codes_between(keys.mT, kept.mT, bits)
    rows, kept_rows = (x.movedim(1, 2).flatten(2) for x in (values, kept))
    value_codes, *value_scales = codes_between(rows, kept_rows, bits)
    value_codes = value_codes.unflatten(-1, (KV_HEADS, WIDTH)).movedim(2, 1).mT
    packed = (pack_bits(side.contiguous(), bits) for side in (key_codes, value_codes))
    key_words, value_words = packed
    exact = keys[kept], values[kept], dynamic
    return key_words, *key_scales, value_words, *value_scales, *exact


def block_alone(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a compressed layer."""
    given = to_compress(tokens, dtype)
    return dict(block=kv.hex_compress(**given), expander=given["expander"])


@row(block_alone, LAYER)
def hex_reconstruct(block: Any, expander: Tensor) -> tuple[Tensor, Tensor]:
    """Restore all codes, and write the kept entries over them."""
    kept, tokens = joined(expander, block.dynamic), len(expander)
    codes = (unpack_bits(words, block.bits, tokens).mT for words in (block[1], block[4]))
    key_codes, value_codes = codes
    keys = dequantise(key_codes.mT, block.key_steps, block.key_minima).mT
    steps, minima = (part[:, None, :] for part in (block.value_steps, block.value_minima))
    values = dequantise(value_codes, steps, minima)
    both = zip((keys, values), (block.kept_keys, block.kept_values), strict=True)
    keys, values = (rest.to(exact.dtype).masked_scatter(kept, exact) for rest, exact in both)
    return keys, values


def stored_layer(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return HEX's cache of a layer as one block, without tokens in its residual buffer."""
    config = kv.hex_preset("HEX-4")
    given, drawn = layer(tokens, dtype), importance(3, 1, tokens)
    static = static_mask(tokens, config.density)
    dynamic = kv.h2o_mask(drawn, config.heavy, config.recent)
    block = kv.hex_compress(**given, expander=static, dynamic=dynamic, bits=BITS)
    nothing, drawn = given["keys"][..., :0, :], drawn[:, :0]
    rest = nothing, nothing, drawn, drawn, nothing, nothing
    return dict(cache=kv.HexCache(config, (block,), *rest))


@row(stored_layer, LAYER)
def hex_read(cache: kv.HexCache) -> tuple[Tensor, Tensor]:
    """Restore the block; its static mask is at hand."""
    (block,) = cache.blocks
    return hex_reconstruct(block, static_mask(block.dynamic.shape[-1], cache.config.density))


@cache
def static_mask(tokens: int, density: float) -> Tensor:
    """Return a static mask, which a user keeps."""
    return kv.expander_mask(tokens, KV_HEADS * WIDTH, density)


def query_and_cache(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a query and HEX's cache."""
    return dict(queries=normal(0, 1, QUERY_HEADS, 1, WIDTH).to(dtype)) | stored_layer(tokens, dtype)


@row(query_and_cache, LAYER + ", 32 query heads, one query", compared=itemgetter(0))
def hex_attention(queries: Tensor, cache: kv.HexCache) -> Tensor:
    """Restore the cache and attend."""
    return F.scaled_dot_product_attention(queries, *hex_read(cache), enable_gqa=True)


def next_token(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return HEX's cache, and a new token."""
    new = (normal(seed, 1, KV_HEADS, 1, WIDTH).to(dtype) for seed in (4, 5))
    return query_and_cache(tokens, dtype) | dict(zip(("keys", "values"), new, strict=True))


@row(next_token, LAYER + ", 32 query heads, a step", compared=lambda result: result.output)
def hex_decode(queries: Tensor, cache: kv.HexCache, keys: Tensor, values: Tensor) -> Tensor:
    """Restore the cache, add the token and attend; sum no mass, and compress no full buffer."""
    pairs = zip(hex_read(cache), (keys, values), strict=True)
    all_keys, all_values = (torch.cat(pair, -2) for pair in pairs)
    return F.scaled_dot_product_attention(queries, all_keys, all_values, enable_gqa=True)
