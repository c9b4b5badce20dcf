"""SnapKV's scores: 32 query heads over 8 key heads of 128 channels, a window of 32 queries.

The slow side is the simplest implementation: every key head repeated for its group, a mask as large
as the weights, softmax, pooling for each query head, the mean over the group.
"""

import math
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.timing_harness import Case, Inputs, normal

KV_HEADS, QUERY_HEADS, WIDTH, WINDOW, KERNEL = 8, 32, 128, 32, 5
TOKENS = (4096, 8192, 16384, 32768)
LAYER = f"[1, {KV_HEADS}, {{}}, {WIDTH}] {{}}, {QUERY_HEADS} query heads"


def layer_inputs(tokens: int, dtype: torch.dtype = torch.float32) -> Inputs:
    """Return the last queries and all keys of a layer."""
    queries = normal(0, 1, QUERY_HEADS, WINDOW, WIDTH).to(dtype)
    return dict(queries=queries, keys=normal(1, 1, KV_HEADS, tokens, WIDTH).to(dtype))


def scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Return this project's scores."""
    return kv.snapkv(queries, keys, WINDOW, KERNEL).scores


def naive_scores(queries: Tensor, keys: Tensor) -> Tensor:
    """Return scores with every step over all query heads and all tokens."""
    batch, kv_heads, tokens, width = keys.shape
    group = queries.shape[1] // kv_heads
    repeated = keys[:, :, None].expand(batch, kv_heads, group, tokens, width)
    logits = queries @ repeated.reshape(batch, -1, tokens, width).mT / math.sqrt(width)
    logits += torch.full_like(logits, -math.inf).triu_(tokens - WINDOW + 1)
    weights = logits.softmax(-1, dtype=torch.float32)[..., : tokens - WINDOW]
    pooled = F.avg_pool1d(weights.sum(-2), KERNEL, 1, KERNEL // 2)
    mean = pooled.view(batch, kv_heads, group, -1).mean(2)
    return F.pad(mean, (0, WINDOW))


PROMPT = 8192 if torch.cuda.is_available() else 512


def prompt(tokens: int) -> Inputs:
    """Return queries, keys and values of a prompt."""
    cache = dict(keys=KV_HEADS, values=KV_HEADS, queries=QUERY_HEADS)
    shapes = {name: (1, heads, tokens, WIDTH) for name, heads in cache.items()}
    return {name: normal(4, *shape).bfloat16() for name, shape in shapes.items()}


def forward(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return attention as the model computes it, by a fused kernel if PyTorch has one."""
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)


CASES = [
    *(
        Case("snapkv", LAYER.format(tokens, str(dtype)[6:]), partial(layer_inputs, tokens, dtype),
            scores, naive_scores, "the usual way")
        for dtype in (torch.float32, torch.bfloat16)
        for tokens in TOKENS
    ),
    Case(
        "h2o_mass",
        f"a prompt of {PROMPT} tokens, {QUERY_HEADS} heads, bfloat16",
        lambda: prompt(PROMPT),
        lambda queries, keys, values: kv.h2o_mass(queries, keys),  # noqa: ARG005
        forward,
        "attention forward",
    ),
]  # fmt: skip
