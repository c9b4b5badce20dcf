"""Attention over compressed caches, and decoding steps with them: 4 kv heads of 64, group 4.

The steps are those of a model of two layers and hidden width 1024. The slow side is a cache of all
tokens in full precision.
"""

from copy import deepcopy
from functools import lru_cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import optimized as kv
from optimized import models
from optimized.bench.timing_harness import Case, Inputs, timing_test
from optimized.models.decoding_cache import DecodingLayer
from optimized.models.hex import HexLayer
from optimized.models.layer import AttendingCache

ALSO = ("hex_decode",)
KV_HEADS, QUERY_HEADS, WIDTH = 4, 16, 64
CONFIG = LlamaConfig(
    hidden_size=1024,
    intermediate_size=2816,
    num_hidden_layers=2,
    num_attention_heads=QUERY_HEADS,
    num_key_value_heads=KV_HEADS,
    head_dim=WIDTH,
    vocab_size=1000,
    max_position_embeddings=2**15,
)
SHARE = 0.75
"""The share of entries that are evicted."""
STORES = ("HEX-3", "HEX-4", "KCVT-3", "KCVT-4", "dense", "ragged", "shrinking")


def stream(tokens: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return random queries, keys and values, a batch of one."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(1, QUERY_HEADS + 2 * KV_HEADS, tokens, WIDTH, generator=generator)
    queries, keys, values = numbers.to(dtype).split([QUERY_HEADS, KV_HEADS, KV_HEADS], 1)
    return queries, keys.contiguous(), values.contiguous()


def survivors(keys: Tensor, values: Tensor, store: str = "ragged") -> Any:
    """Return a cache without three quarters of its entries; ragged heads keep different shares."""
    scores = torch.rand(keys.shape[:-1], generator=torch.Generator().manual_seed(1))
    scores *= torch.arange(1, KV_HEADS + 1)[:, None]
    scope = "layer" if store == "ragged" else "head"
    return kv.evict(keys, values, kv.retain(scores, ratio=SHARE, scope=scope))


def compressed(tokens: int, bits: int, dtype: torch.dtype) -> Inputs:
    """Return a query, the cache in full precision and the HEX cache."""
    queries, keys, values = stream(tokens, dtype)
    cache = kv.hex_prefill(queries, keys, values, kv.hex_preset(f"HEX-{bits}"))
    return dict(queries=queries[:, :, -1:], keys=keys, values=values, cache=cache)


def evicted(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a query, the cache in full precision and the cache after eviction."""
    queries, keys, values = stream(tokens, dtype)
    cache = survivors(keys, values)
    return dict(queries=queries[:, :, -1:], keys=keys, values=values, cache=cache)


def stock(queries: Tensor, keys: Tensor, values: Tensor, cache: Any) -> Tensor:
    """Return attention in full precision."""
    del cache
    return F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)


def rebuilding(queries: Tensor, keys: Tensor, values: Tensor, cache: kv.HexCache) -> Tensor:
    """Return attention to the restored HEX cache."""
    del keys, values
    return kv.attention(queries, *kv.hex_read(cache))


def by_code(queries: Tensor, keys: Tensor, values: Tensor, cache: kv.HexCache) -> Tensor:
    """Return attention to the compressed HEX cache."""
    del keys, values
    return kv.hex_attention(queries, cache).output


def by_head(queries: Tensor, keys: Tensor, values: Tensor, cache: kv.RaggedCache) -> Tensor:
    """Return attention to the kept entries and the last token."""
    return kv.ragged_attention(queries, cache, keys[:, :, -1:], values[:, :, -1:])


@lru_cache
def model(dtype: torch.dtype, ours: bool) -> Any:
    """Return a model of random weights, or a copy of it that attends through this package."""
    if ours:
        return models.attach(deepcopy(model(dtype, False)))
    torch.manual_seed(0)
    return LlamaForCausalLM(CONFIG).eval().to(dtype)  # pyright: ignore[reportArgumentType]


def filled(tokens: int, store: str, dtype: torch.dtype) -> Inputs:
    """Return a model's cache of so many tokens in full precision, and a compressed one."""
    queries, keys, values = stream(tokens, dtype)
    full = DynamicCache(config=CONFIG)
    for layer in range(CONFIG.num_hidden_layers):
        full.update(keys.clone(), values.clone(), layer)
    if store == "shrinking":
        ours = shrinking(keys, values)
    elif store in ("dense", "ragged"):
        ours = evicting(keys, values, store)
    else:
        ours = coding(queries, keys, values, store)
    for layer in ours.layers:
        layer.seen = tokens
    ours.ends = [tokens]
    return dict(dtype=dtype, full=full, ours=ours)


def evicting(keys: Tensor, values: Tensor, store: str) -> models.EvictionCache:
    """Return a model's cache after eviction."""
    cache = models.EvictionCache(CONFIG)
    for layer in cache.evictable():
        layer.lazy_initialization(keys, values)
        layer.adopt(survivors(keys, values, store))
    cache.open = True
    return cache


def coding(queries: Tensor, keys: Tensor, values: Tensor, store: str) -> AttendingCache:
    """Return a model's HEX cache."""
    settings = kv.hex_preset(store)
    cache = models.HexTransformersCache(CONFIG, settings)
    for layer in cache.layers:
        assert isinstance(layer, HexLayer)
        layer.lazy_initialization(keys, values)
        layer.held = kv.hex_prefill(queries, keys, values, settings)
    return cache


def shrinking(keys: Tensor, values: Tensor) -> models.DecodingTransformersCache:
    """Return a model's cache that evicts entries while decoding."""
    settings = kv.DecodingConfig(round((1 - SHARE) * keys.shape[2]), scope="layer")
    cache = models.DecodingTransformersCache(CONFIG, settings)
    scores = torch.rand(keys.shape[:-1], generator=torch.Generator().manual_seed(1))
    for layer in cache.layers:
        assert isinstance(layer, DecodingLayer)
        layer.lazy_initialization(keys, values)
        layer.held = kv.decoding_start(keys, values, scores, settings)
    return cache


def step(dtype: torch.dtype, full: DynamicCache, ours: Any, compressed: bool) -> None:
    """Read one more token with either cache."""
    with torch.no_grad():
        token = torch.ones(1, 1, dtype=torch.long)
        model(dtype, compressed)(input_ids=token, past_key_values=ours if compressed else full)


ROWS = [
    *(
        Case("hex_attention", f"{tokens} tokens, {bits} bits, {str(dtype)[6:]}{against[0]}",
            partial(compressed, tokens, bits, dtype), by_code, against[1], against[2])
        for tokens in (1024, 4096, 8192)
        for bits in (3, 4)
        for dtype in (torch.float32, torch.bfloat16)
        for against in (("", rebuilding, "hex_read"), (", stock", stock, "full precision"))
    ),
    *(
        Case("ragged_attention", f"{tokens} tokens, {SHARE:.0%} evicted, {str(dtype)[6:]}",
            partial(evicted, tokens, dtype), by_head, stock, "full precision")
        for tokens in (1024, 4096, 8192)
        for dtype in (torch.float32, torch.bfloat16)
    ),
    *(
        Case("decoding step", f"{tokens} tokens, {store}, {str(dtype)[6:]}",
            partial(filled, tokens, store, dtype),
            partial(step, compressed=True), partial(step, compressed=False), "full precision")
        for tokens in (1024, 4096, 8192)
        for store in STORES
        for dtype in (torch.float32, torch.bfloat16)
    ),
]  # fmt: skip

test_timing = timing_test(ROWS)
