"""Attention over compressed caches, and whole steps with them: 4 kv heads of 64, 16 query heads.

The steps are those of a model of two layers, hidden 1024, in one process with the stock step that
they are measured against, whose cache holds every token.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import optimized as kv
from optimized import models
from optimized.bench.row import Inputs, Row, both_sides, measure

FUNCTIONS = ("hex_attention", "hex_decode", "ragged_attention")
KV_HEADS, QUERY_HEADS, WIDTH, LAYERS, BLOCK = 4, 16, 64, 2, 96
DTYPES = (torch.float32, torch.bfloat16)


def normal(seed: int, heads: int, tokens: int, dtype: torch.dtype) -> Tensor:
    """Return numbers without structure, a batch of one."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, tokens, WIDTH, generator=generator).to(dtype)


def stream(tokens: int, dtype: torch.dtype) -> list[Tensor]:
    """Return queries, keys and values of a prompt."""
    heads = (QUERY_HEADS, KV_HEADS, KV_HEADS)
    return [normal(seed, count, tokens, dtype) for seed, count in enumerate(heads)]


def asking(tokens: int, bits: int, dtype: torch.dtype) -> Inputs:
    """Return a question to a compressed prompt."""
    queries, keys, values = stream(tokens, dtype)
    config = kv.HexConfig(bits=bits)
    return dict(queries=queries[:, :, -1:], cache=kv.hex_prefill(queries, keys, values, config))


def rebuilt(queries: Tensor, cache: kv.HexCache) -> Tensor:
    """Attend to what is restored of a cache."""
    return kv.attention(queries, *kv.hex_read(cache))


def evicted(tokens: int, dtype: torch.dtype) -> Inputs:
    """Return a quarter of a prompt's entries, a different number of each head, and one token."""
    queries, keys, values = stream(tokens, dtype)
    scores = torch.rand(1, KV_HEADS, tokens, generator=torch.Generator().manual_seed(9))
    scores = scores * torch.arange(1, KV_HEADS + 1)[:, None]
    cache = kv.evict(keys, values, kv.retain(scores, ratio=0.75, scope="layer"))
    last = slice(tokens - 1, tokens)
    new = (x[:, :, last] for x in (queries, keys, values))
    return dict(zip(("queries", "keys", "values"), new, strict=True)) | dict(cache=cache)


def whole(queries: Tensor, cache: kv.HexCache | kv.RaggedCache, **_: Any) -> Tensor:
    """Attend to as many tokens in full precision as the rows of that cache were made from."""
    dtype = queries.dtype
    tokens = LENGTHS[id(cache)]
    raise NotImplementedError(dtype, tokens)
