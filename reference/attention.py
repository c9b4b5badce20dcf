"""Softmax attention with grouped queries, and the change of its output by a compressed cache."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import aligned, finite_log_sum_exp, grouped, wide
from reference.contract.types import Finite, FiniteAbove0
from reference.precision import widen, widest


def known_of(
    log_sum_exp: Tensor | None, queries: slice, row: tuple[int, ...] = ()
) -> Tensor | None:
    """Return the given log-sum-exp of some queries, of one batch row; None if none is given."""
    return None if log_sum_exp is None else log_sum_exp[(*row, ..., queries)]


def scaled_logits(queries: Tensor, keys: Tensor, causal: bool, scale: float | None) -> Tensor:
    r"""Return $q_t k_j / \sqrt{d_h}$; minus infinity where a query does not see the key."""
    scale = 1 / math.sqrt(queries.shape[-1]) if scale is None else scale
    group = queries.shape[-3] // max(1, keys.shape[-3])
    queries, keys = widen(queries), widen(keys).repeat_interleave(group, -3)
    count, tokens, exact = queries.shape[-2], keys.shape[-2], widest(queries, keys)
    logits = queries.new_full((*queries.shape[:-1], tokens), -torch.inf, dtype=exact)
    for t in range(count):
        seen = tokens - count + t + 1 if causal else tokens
        logits[..., t, :seen] = (queries[..., t, None, :] * keys[..., :seen, :]).sum(-1) * scale
    return logits


@requires(wide, grouped, aligned, finite_log_sum_exp)
def attention_weights(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    causal: bool = True,
    scale: FiniteAbove0 | None = None,
    log_sum_exp: Float[Tensor, "*batch query_heads queries"] | None = None,
) -> Float[Tensor, "*batch query_heads queries tokens"]:
    r"""How much each query attends to each cached token.

    $$a_t = \operatorname{softmax}\Bigl(\frac{q_t K^\top}{\sqrt{d_h}}\Bigr)
      = \exp\Bigl(\frac{q_t K^\top}{\sqrt{d_h}} - L_t\Bigr)$$

    Args:
        queries: $q_t$; the last query sees the last key.
        keys: $K$; head $h$ of the queries uses key head $\lfloor h / G \rfloor$, with $G$ query
            heads for each key head.
        causal: query number $t$ of $m$ sits at position $n - m + t$ of the $n$ tokens and sees
            nothing after it; otherwise it sees every token.
        scale: factor on the logits; $1 / \sqrt{d_h}$ unless given.
        log_sum_exp: $L_t$, the natural logarithm of the sum of the powers of the scaled logits that
            a query sees, as a flash forward returns it; computed here unless given.

    Returns:
        The weights in float32, or float64 where an argument is; each row sums to 1.

    Source:
        HEX-3.1a. As printed (§3.1); $V$ is left out, and the form with $L_t$ is ours.

    Reading:
        C3, C4, E-A1: softmax in float32; consecutive query heads share a key head; the last
        query is aligned with the last key.
    """
    logits = scaled_logits(queries, keys, causal, scale)
    if log_sum_exp is None:
        return logits.softmax(-1)
    return (logits - log_sum_exp[..., None]).exp()


@requires(wide, grouped, aligned)
def attention(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    causal: bool = True,
    scale: FiniteAbove0 | None = None,
) -> Float[Tensor, "*batch query_heads queries width"]:
    r"""Attention of each query over the cache.

    $$\operatorname{Attn}(q_t, K, V)
      = \operatorname{softmax}\Bigl(\frac{q_t K^\top}{\sqrt{d_h}}\Bigr) V$$

    Args:
        queries: $q_t$; the last query sees the last key.
        keys: $K$.
        values: $V$.
        causal: whether a query sees nothing after its own position.
        scale: factor on the logits; $1 / \sqrt{d_h}$ unless given.

    Returns:
        The output in the dtype of `queries`, rounded to it once; a query that sees one token
        returns that token's value.

    Source:
        HEX-3.1a. As printed (§3.1).
    """
    weights = attention_weights(queries, keys, causal, scale)
    exact = torch.promote_types(weights.dtype, values.dtype)
    weights, values = weights.to(exact), values.to(exact)
    group = weights.shape[-3] // max(1, values.shape[-3])
    out = torch.empty_like(queries)
    for h in range(weights.shape[-3]):
        out[..., h, :, :] = weights[..., h, :, :] @ values[..., h // group, :, :]
    return out


@requires(wide, grouped, aligned)
def attention_error(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    compressed_keys: Finite[Tensor, "*batch kv_heads tokens width"],
    compressed_values: Finite[Tensor, "*batch kv_heads tokens width"],
    causal: bool = True,
    scale: FiniteAbove0 | None = None,
) -> Float[Tensor, "*batch query_heads queries"]:
    r"""The change of each query's output when the cache is compressed.

    $$\epsilon_t = \bigl\lVert \operatorname{Attn}(q_t, K, V)
      - \operatorname{Attn}(q_t, \widehat K, \widehat V) \bigr\rVert_2$$

    Args:
        queries: $q_t$; the last query sees the last key.
        keys: $K$.
        values: $V$.
        compressed_keys: $\widehat K$: a compressed cache has an entry for every token.
        compressed_values: $\widehat V$.
        causal: whether a query sees nothing after its own position.
        scale: factor on the logits; $1 / \sqrt{d_h}$ unless given.

    Returns:
        The deviation $\epsilon_t$ of each query in float32, or float64 where an argument is:
        exactly 0 where the two caches are equal.

    Source:
        HEX-3.1b. As printed (§3.1).
    """
    exact = widen(queries)
    for tensor in (keys, values, compressed_keys, compressed_values):
        exact = exact.to(torch.promote_types(exact.dtype, tensor.dtype))
    before = attention(exact, keys, values, causal, scale)
    after = attention(exact, compressed_keys, compressed_values, causal, scale)
    return (before - after).norm(dim=-1)
