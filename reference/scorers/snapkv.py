"""SnapKV: what the last queries of a prompt look at."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import attention_errors, errors
from reference.attention import attention_weights
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers.scored import Scored

POOLINGS = ("average", "max")


def snapkv(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    window: int = 32,
    kernel: int = 5,
    pooling: str = "average",
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by the pooled attention of the last queries, and protect those.

    $$s_t = \frac1G \sum_{g=1}^{G} \operatorname{pool}_t
      \Bigl( \sum_{q > N - W} A^{(g)}_{q, \cdot} \Bigr), \qquad t < N - W$$

    Args:
        queries: all queries or the last ones, at least a window of them; the last one sits at
            the last key.
        keys: all keys, finite.
        window: number $W$ of queries that observe, at least 1.
        kernel: width of the pooling, odd.
        pooling: `"average"` divides by `kernel` everywhere, so that what lies outside counts as
            zeros; or `"max"`.
        valid: false at padding, on the left of a row.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: 0 within the
        window, which is protected. A row of at most $W$ real tokens is protected as a whole.

    Raises:
        TypeError: `queries` or `keys` is not floating point, `valid` not boolean, or `window` or
            `kernel` not an integer.
        ValueError: `queries` or `keys` is not finite or does not fit the other, there are more
            queries than tokens or fewer than the window asks for, `window` is below 1, `kernel`
            below 1 or even, `pooling` unknown, `valid` has another shape than `keys` without
            heads and width, or a false after a true.

    Source:
        GraphKV-SnapKV.

    Reading:
        C3, C4, E-G31: weights over all that a query sees, the window included, and not
        normalised again; pooled for each query head, then averaged over the group.
    """
    attention_errors.attendable(queries, keys, True)
    errors.whole("window", window, 1)
    refuse.odd("kernel", kernel)
    errors.one_of("pooling", pooling, POOLINGS)
    batch, (kv_heads, tokens) = keys.shape[:-3], keys.shape[-3:-1]
    refuse.observers(queries.shape[-2], window, tokens)
    valid = keys.new_ones(*batch, tokens, dtype=torch.bool) if valid is None else valid
    refuse.padding(valid, (*batch, tokens))
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    heads = queries.shape[-3]
    group = heads // max(1, kv_heads)
    for row in product(*map(range, batch)):
        first = tokens - int(valid[row].sum())
        start = max(first, tokens - window)
        protected[row][:, start:] = True
        if start == first:
            continue
        weights = attention_weights(queries[row][:, -window:], keys[row][:, first:])
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
