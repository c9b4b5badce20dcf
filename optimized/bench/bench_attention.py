"""Attention over compressed caches, and the mass of a prompt, beside attention in full precision.

Caches have 4 kv heads of 64, group 4. The steps of a model with them are timed by
`optimized.bench.model_memory`.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs, normal

ALSO = ("hex_decode",)
KV_HEADS, QUERY_HEADS, WIDTH = 4, 16, 64
SHARE = 0.75
"""The share of entries that are evicted."""


def stream(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return random queries, keys and values, a batch of one."""
    heads = dict(queries=QUERY_HEADS, keys=KV_HEADS, values=KV_HEADS)
    return {
        name: normal(seed, 1, count, tokens, WIDTH).to(dtype)
        for seed, (name, count) in enumerate(heads.items())
    }


def compressed(tokens: int, bits: int, dtype: torch.dtype) -> Inputs:
    """Return a query, the cache in full precision and the HEX cache."""
    made = stream(tokens, dtype)
    cache = kv.hex_prefill(**made, config=kv.hex_preset(f"HEX-{bits}"))
    return made | dict(queries=made["queries"][:, :, -1:], cache=cache)


def evicted(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a query, the cache in full precision and the cache after eviction."""
    made = stream(tokens, dtype)
    # scores differ in scale, so that heads keep different numbers of entries
    scores = normal(3, 1, KV_HEADS, tokens).abs() * torch.arange(1, KV_HEADS + 1)[:, None]
    kept = kv.retain(scores, ratio=SHARE, scope="layer")
    cache = kv.evict(made["keys"], made["values"], kept).ragged()
    return made | dict(queries=made["queries"][:, :, -1:], cache=cache)


def stock(queries: Tensor, keys: Tensor, values: Tensor, cache: Any) -> Tensor:
    """Return attention in full precision."""
    del cache
    return F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)


def by_code(queries: Tensor, keys: Tensor, values: Tensor, cache: kv.HexCache) -> Tensor:
    """Return attention to the compressed HEX cache."""
    del keys, values
    return kv.hex_attention(queries, cache).output


def by_head(queries: Tensor, keys: Tensor, values: Tensor, cache: kv.RaggedCache) -> Tensor:
    """Return attention to the kept entries and the last token."""
    return kv.ragged_attention(queries, cache, keys[:, :, -1:], values[:, :, -1:])


PROMPT = 8192 if torch.cuda.is_available() else 512


def prompt() -> Inputs:
    """Return queries, keys and values of a prompt in a layer of 8 kv heads of 128, group 4."""
    heads = dict(keys=8, values=8, queries=32)
    return {name: normal(4, 1, count, PROMPT, 128).bfloat16() for name, count in heads.items()}


def scored(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the attention mass of a prompt."""
    del values
    return kv.h2o_mass(queries, keys)


def forward(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention as the model computes it, by a fused kernel if PyTorch has one."""
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)


CASES = [
    *(
        Case("hex_attention", f"{tokens} tokens, {bits} bits, {str(dtype)[6:]}",
            partial(compressed, tokens, bits, dtype), by_code, stock, "full precision")
        for tokens in (1024, 4096, 8192)
        for bits in (3, 4)
        for dtype in (torch.float32, torch.bfloat16)
    ),
    *(
        Case("ragged_attention", f"{tokens} tokens, {SHARE:.0%} evicted, {str(dtype)[6:]}",
            partial(evicted, tokens, dtype), by_head, stock, "full precision")
        for tokens in (1024, 4096, 8192)
        for dtype in (torch.float32, torch.bfloat16)
    ),
    Case("h2o_mass", f"a prompt of {PROMPT} tokens, 32 heads, bfloat16", prompt, scored, forward,
        "attention forward"),
]  # fmt: skip
