"""Attention with grouped queries as two batched products."""

import math

import torch
from torch import Tensor

import reference
from optimized._composed import composed
from reference.precision import widen


def attention_weights(
    queries: Tensor, keys: Tensor, causal: bool = True, scale: float | None = None
) -> Tensor:
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    exact = torch.promote_types(widen(queries).dtype, keys.dtype)
    logits = _grouped_product(queries.to(exact) * scale, keys.to(exact).mT)
    if causal:
        count, tokens = logits.shape[-2:]
        unseen = torch.ones(count, tokens, dtype=torch.bool, device=logits.device)
        logits = logits.masked_fill_(unseen.triu_(tokens - count + 1), -torch.inf)
    return logits.softmax(-1)


def _grouped_product(left: Tensor, right: Tensor) -> Tensor:
    """Multiply each head's matrix by that of its group, without repeating the latter."""
    *batch, heads, rows, inner = left.shape
    group = heads // max(1, right.shape[-3])
    stacked = left.reshape(*batch, right.shape[-3], group * rows, inner)
    return (stacked @ right).reshape(*batch, heads, rows, right.shape[-1])


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, causal: bool = True, scale: float | None = None
) -> Tensor:
    weights = attention_weights(queries, keys, causal, scale)
    exact = torch.promote_types(weights.dtype, values.dtype)
    return _grouped_product(weights.to(exact), values.to(exact)).to(queries.dtype)


attention_error = composed(reference.attention_error)
