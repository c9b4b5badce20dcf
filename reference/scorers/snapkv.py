"""SnapKV: what the last queries of a prompt look at."""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.attention import attention_weights, known_of
from reference.contract.enforce import requires
from reference.contract.preconditions import (
    aligned,
    finite_log_sum_exp,
    grouped,
    left_padded,
    queries_cover_window,
    wide,
)
from reference.contract.types import Finite, Odd, Positive
from reference.precision import widest
from reference.scorers._padding import row_starts, valid_or_all
from reference.scorers.scored import Scored


@requires(wide, grouped, aligned, queries_cover_window, left_padded, finite_log_sum_exp)
def snapkv(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    window: Positive = 32,
    kernel: Odd = 5,
    pooling: Literal["average", "max"] = "average",
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    log_sum_exp: Float[Tensor, "*batch query_heads queries"] | None = None,
) -> Scored:
    r"""Score each token by the pooled attention of the last queries, and protect those.

    $$s_t = \frac1G \sum_{g=1}^{G} \operatorname{pool}_t
      \Bigl( \sum_{q \ge N - W} A^{(g)}_{q, \cdot} \Bigr), \qquad t < N - W$$

    Args:
        queries: all queries or the last ones, at least a window of them; the last one sits at
            the last key.
        keys: all keys.
        window: number $W$ of queries that observe.
        kernel: width of the pooling.
        pooling: `"average"` divides by `kernel` everywhere, so that what lies outside counts as
            zeros; or `"max"`.
        valid: false at padding, on the left of a row.
        log_sum_exp: $L$ of all `queries`, as `attention_weights` takes it; what stands at padding
            is not read.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: 0 within the
        window, which is protected. A row of at most $W$ real tokens is protected as a whole.

    Source:
        GraphKV-SnapKV. From elsewhere: Li et al.; the paper names SnapKV and does not define it
        (E-G31); the mean over a group is ours (E-G61).

    Reading:
        C3, C4, E-G31: weights over all that a query sees, the window included, and not
        normalised again; pooled for each query head, then averaged over the group.
    """
    heads, (kv_heads, tokens) = queries.shape[-3], keys.shape[-3:-1]
    group = heads // max(1, kv_heads)
    exact = widest(queries, keys, log_sum_exp)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    for row, first in row_starts(valid_or_all(valid, keys)):
        start = max(first, tokens - window)
        protected[row][:, start:] = True
        if start == first:
            continue
        log_sum = known_of(log_sum_exp, slice(-window, None), row)
        last = queries[row][:, -window:]
        weights = attention_weights(last, keys[row][:, first:], log_sum_exp=log_sum)
        observed = weights.new_zeros(heads, start - first)
        for q in range(window):
            observed += weights[:, q, : start - first]
        for h in range(heads):
            scores[row][h // group, first:start] += _pooled(observed[h], kernel, pooling) / group
    return Scored(scores, protected)


def _pooled(
    observed: Float[Tensor, " tokens"], kernel: int, pooling: str
) -> Float[Tensor, " tokens"]:
    """Pool over windows of `kernel` tokens, as many windows as tokens."""
    pooled = torch.empty_like(observed)
    for t in range(len(observed)):
        around = observed[max(0, t - kernel // 2) : t + kernel // 2 + 1]
        pooled[t] = around.amax() if pooling == "max" else around.sum() / kernel
    return pooled
