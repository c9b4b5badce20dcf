"""CAKE: what recent queries look at on average, and how much they disagree about it."""

from typing import Annotated

import torch
from annotated_types import Ge
from jaxtyping import Bool, Float
from torch import Tensor

from reference.attention import attention_weights
from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import (
    aligned,
    grouped,
    left_padded,
    queries_cover_window,
    wide,
)
from reference.contract.types import Finite, FiniteAbove0, FiniteNonNegative, Odd
from reference.precision import widest
from reference.scorers._padding import row_starts, valid_or_all
from reference.scorers.scored import Scored


@requires(wide, grouped, aligned, queries_cover_window, left_padded)
def cake(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    window: Annotated[int, Ge(2)] = 32,
    gamma: FiniteNonNegative = 200.0,
    kernel: Odd = 5,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by mean and variance of the last queries' attention, and protect those.

    $$s_t = \frac1G \sum_{g=1}^{G} \operatorname{pool}_t \Bigl(
      \operatorname{mean}_q A^{(g)}_{q, \cdot}
      + \gamma \operatorname{Var}_q A^{(g)}_{q, \cdot} \Bigr), \qquad t < N - W$$

    Args:
        queries: all queries or the last ones, at least a window of them; the last one sits at
            the last key.
        keys: all keys.
        window: number $W$ of queries that observe.
        gamma: weight $\gamma$ of the variance.
        kernel: width of the average pooling; what lies outside counts as zeros.
        valid: false at padding, on the left of a row.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: 0 within the
        window, which is protected. A row of at most $W$ real tokens is protected as a whole.

    Raises:
        ValueError: `gamma` leads to scores that are infinite.

    Source:
        GraphKV-CAKE. From elsewhere: Qin et al.; the paper names CAKE and does not define it
        (E-G40).

    Reading:
        C3, C4, E-G40, E-G71: weights over all that a query sees, not normalised again; the
        variance divides by $W - 1$; the authors' code rounds to the model's type before it.
    """
    kv_heads, tokens = keys.shape[-3:-1]
    exact = widest(queries, keys)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    group = queries.shape[-3] // max(1, kv_heads)
    for row, first in row_starts(valid_or_all(valid, keys)):
        start = max(first, tokens - window)
        protected[row][:, start:] = True
        if start == first:
            continue
        weights = attention_weights(queries[row][:, -window:], keys[row][:, first:])
        for h, seen in enumerate(weights[..., : start - first]):
            indicator = seen.mean(0) + gamma * _variance(seen)
            for t in range(start - first):
                around = indicator[max(0, t - kernel // 2) : t + kernel // 2 + 1]
                scores[row][h // group, first + t] += around.sum() / kernel / group
    checks.refuse_overflow("gamma", scores, gamma)
    return Scored(scores, protected)


@requires(wide, grouped, aligned, queries_cover_window, left_padded)
def cake_preference(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    window: Annotated[int, Ge(2)] = 32,
    tau1: FiniteAbove0 = 1.0,
    tau2: FiniteAbove0 = 1.0,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Float[Tensor, "*batch"]:
    r"""How much cache a layer asks for: spread over tokens, times change over queries.

    $$P = H^{1/\tau_1}\, V^{1/\tau_2}, \;\,
      H = \max\Bigl(0, -\sum_h \sum_{t < N - W} \sum_q A^{(h)}_{q,t}
      \log(A^{(h)}_{q,t} + 10^{-10})\Bigr), \;\,
      V = \sum_h \sum_{t < N - W} \operatorname{Var}_q A^{(h)}_{q,t}$$

    Args:
        queries: all queries of the layer or the last ones, at least a window of them.
        keys: all its keys.
        window: number $W$ of queries that observe.
        tau1: temperature $\tau_1$ of the entropy.
        tau2: temperature $\tau_2$ of the variance.
        valid: false at padding, on the left of a row.

    Returns:
        The preference of each batch row, summed over the query heads, in float32: 0 where
        nothing precedes the window.

    Raises:
        ValueError: `tau1` or `tau2` is so small that the result is infinite.

    Source:
        GraphKV-CAKE. From elsewhere: Qin et al.; the paper names CAKE and does not define it. The
        maximum and the sums over query heads $h$ are ours (E-G40, E-G41).

    Reading:
        E-G40, E-G41: computed in float64 and rounded once, because entropy and variance cancel;
        the entropy is at least 0. Sums over heads stand for means: only ratios of layers count.
    """
    batch, tokens = keys.shape[:-3], keys.shape[-2]
    preference = keys.new_zeros(batch, dtype=torch.float64)
    for row, first in row_starts(valid_or_all(valid, keys)):
        start = max(first, tokens - window)
        if start == first:
            continue
        observing = queries[row][:, -window:].double()
        weights = attention_weights(observing, keys[row][:, first:].double())
        entropy = change = weights.new_zeros(())
        for seen in weights[..., : start - first]:
            entropy = entropy - (seen * (seen + 1e-10).log()).sum()
            change = change + _variance(seen).sum()
        preference[row] = entropy.clamp(min=0) ** (1 / tau1) * change ** (1 / tau2)
    preference = preference.float()
    checks.refuse_overflow("tau1", preference, tau1)
    return preference


def _variance(seen: Float[Tensor, "queries tokens"]) -> Float[Tensor, " tokens"]:
    """Return the unbiased variance over the queries."""
    return (seen - seen.mean(0)).square().sum(0) / (seen.shape[0] - 1)
