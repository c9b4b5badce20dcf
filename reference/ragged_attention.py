"""Attention over heads that keep different numbers of entries, and over newer tokens."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.attention import attention, scaled_logits
from reference.contract.enforce import may_read_values, requires
from reference.contract.preconditions import aligned, grouped, same_dtype, wide
from reference.contract.types import Finite, FiniteAbove0
from reference.evict import RaggedCache
from reference.precision import widest


class RaggedAttention(NamedTuple):
    """What the queries read, and the log-sum-exp of what they see.

    Source:
        Ours: attention to other entries is merged with it.
    """

    output: Float[Tensor, "*batch query_heads queries width"]
    log_sum_exp: Float[Tensor, "*batch query_heads queries"]


def one_span_a_head(cache: RaggedCache, keys: Tensor) -> None:
    """Refuse another number of heads than the keys have, or offsets that do not fit the entries."""
    heads, entries = keys.shape[:-2].numel(), len(cache.keys)
    if len(cache.offsets) != heads + 1:
        raise ValueError(
            f"cache must have {heads + 1} offsets to fit keys, got {len(cache.offsets)}"
        )
    if may_read_values(cache.offsets):
        steps = [int(cache.offsets[0]), *cache.offsets.diff().tolist()]
        if steps[0] or min(steps) < 0 or sum(steps) != entries:
            raise ValueError(
                f"cache must have offsets that rise from 0 to {entries}, "
                f"got {cache.offsets.tolist()}"
            )


@requires(wide, grouped, aligned, same_dtype, one_span_a_head)
def ragged_attention(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    cache: RaggedCache,
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    causal: bool = True,
    scale: FiniteAbove0 | None = None,
    log_sum_exp: bool = False,
) -> Float[Tensor, "*batch query_heads queries width"] | RaggedAttention:
    r"""Attention of each query over the kept entries of its head, and over newer tokens.

    $$\operatorname{Attn}\bigl(q_t,\; K_s^{(h)} \,\Vert\, K_{1:t},\; V_s^{(h)} \,\Vert\,
      V_{1:t}\bigr), \qquad L_t = \ln \sum_j \exp\Bigl(\frac{q_t k_j}{\sqrt{d_h}}\Bigr)$$

    Args:
        queries: $q_t$; the last query sees the last of the new tokens.
        cache: the kept entries of earlier tokens: $K_s^{(h)}$, $V_s^{(h)}$ of each head, one head
            after another, row by row. Every query sees all entries of its head.
        keys: keys $K$ of the new tokens; there may be none where not causal.
        values: values $V$ of the new tokens.
        valid: true at new tokens that are not padding, which may be anywhere in a row. Only its own
            query sees padding, and only where causal.
        causal: whether a query sees no new token after its own position.
        scale: factor on the logits; $1 / \sqrt{d_h}$ unless given.
        log_sum_exp: whether to return $L_t$ as well; its sum is over all $k_j$ that the query sees.

    Returns:
        The output in the dtype of `queries`, rounded to it once; 0 where a query sees nothing. If
        asked for, $L_t$ beside it, in float32, or float64 where an argument is: minus infinity
        where a query sees nothing.

    Source:
        HEX-3.1a, GraphKV-4.1. Ours: the attention that §3.1 of HEX prints, over what is left of a
        head and newer tokens; and $L_t$, by which two parts are merged.

    Reading:
        E-A1: evicted entries are not in the softmax, and the last query is aligned with the last
        new token.
    """
    count, tokens = queries.shape[-2], keys.shape[-2]
    group = queries.shape[-3] // max(1, keys.shape[-3])
    output = torch.zeros_like(queries)
    exact = widest(queries, cache.keys, keys)
    sums = torch.full_like(queries[..., 0], -torch.inf, dtype=exact)
    for head in np.ndindex(*queries.shape[:-2]):
        *row, h = head
        index = (*row, h // group)
        number = int(np.ravel_multi_index(index, keys.shape[:-2]))
        kept = slice(int(cache.offsets[number]), int(cache.offsets[number + 1]))
        for t in range(count):
            position = tokens - count + t
            seen = [
                j
                for j in range(tokens)
                if not (causal and j > position)
                and (valid is None or bool(valid[(*row, j)]) or (causal and j == position))
            ]
            left = torch.cat([cache.keys[kept], keys[index][seen]])
            read = torch.cat([cache.values[kept], values[index][seen]])
            if len(left):
                query = queries[head][None, t, None]
                output[head][t] = attention(query, left[None], read[None], False, scale)[0, 0]
                if log_sum_exp:
                    logits = scaled_logits(query, left[None], False, scale)
                    sums[head][t] = logits.logsumexp(-1)[0, 0]
    return RaggedAttention(output, sums) if log_sum_exp else output
