"""Attention with grouped queries as two batched products."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reference import attention_errors, errors
from reference.precision import widen


def attention_weights(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    causal: bool = True,
    scale: float | None = None,
) -> Float[Tensor, "*batch query_heads queries tokens"]:
    attention_errors.attendable(queries, keys, causal)
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    errors.positive_finite("scale", scale)
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
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    causal: bool = True,
    scale: float | None = None,
) -> Float[Tensor, "*batch query_heads queries width"]:
    errors.floating("values", values, 3)
    errors.finite("values", values)
    weights = attention_weights(queries, keys, causal, scale)
    errors.shaped("values", values, keys.shape)
    exact = torch.promote_types(weights.dtype, values.dtype)
    return _grouped_product(weights.to(exact), values.to(exact)).to(queries.dtype)


def attention_error(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    compressed_keys: Float[Tensor, "*batch kv_heads tokens width"],
    compressed_values: Float[Tensor, "*batch kv_heads tokens width"],
    causal: bool = True,
    scale: float | None = None,
) -> Float[Tensor, "*batch query_heads queries"]:
    attention_errors.attendable(queries, keys, causal)
    for name, tensor in (
        ("values", values),
        ("compressed_keys", compressed_keys),
        ("compressed_values", compressed_values),
    ):
        errors.floating(name, tensor, 3)
        errors.finite(name, tensor)
        errors.shaped(name, tensor, keys.shape)
    exact = widen(queries)
    for tensor in (keys, values, compressed_keys, compressed_values):
        exact = exact.to(torch.promote_types(exact.dtype, tensor.dtype))
    before = attention(exact, keys, values, causal, scale)
    after = attention(exact, compressed_keys, compressed_values, causal, scale)
    return torch.linalg.vector_norm(before - after, dim=-1)
