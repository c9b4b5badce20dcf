"""CAKE: what recent queries look at on average, and how much they disagree about it."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import attention_errors, errors
from reference.attention import attention_weights
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers import scoring_errors
from reference.scorers.scored import Scored


def cake(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    window: int = 32,
    gamma: float = 200.0,
    kernel: int = 5,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by mean and variance of the last queries' attention, and protect those.

    $$s_t = \frac1G \sum_{g=1}^{G} \operatorname{pool}_t \Bigl(
      \operatorname{mean}_q A^{(g)}_{q, \cdot}
      + \gamma \operatorname{Var}_q A^{(g)}_{q, \cdot} \Bigr), \qquad t < N - W$$

    Args:
        queries: all queries or the last ones, at least a window of them; the last one sits at
            the last key.
        keys: all keys, finite.
        window: number $W$ of queries that observe, at least 2.
        gamma: weight $\gamma$ of the variance, finite and at least 0.
        kernel: width of the average pooling, odd; what lies outside counts as zeros.
        valid: false at padding, on the left of a row.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: 0 within the
        window, which is protected. A row of at most $W$ real tokens is protected as a whole.

    Raises:
        TypeError: `queries` or `keys` is not floating point, `valid` not boolean, or `window` or
            `kernel` not an integer.
        ValueError: `queries` or `keys` is not finite or does not fit the other, there are more
            queries than tokens or fewer than the window asks for, `window` is below 2, `gamma` is
            negative or infinite or leads to scores that are, `kernel` is below 1 or even, `valid`
            has another shape than `keys` without heads and width, or a false after a true.

    Source:
        GraphKV-CAKE.

    Reading:
        C3, C4, E-G40, E-G71: weights over all that a query sees, not normalised again; the
        variance divides by $W - 1$; the authors' code rounds to the model's type before it.
    """
    attention_errors.attendable(queries, keys, True)
    errors.whole("window", window, 2)
    scoring_errors.non_negative_finite("gamma", gamma)
    refuse.odd("kernel", kernel)
    batch, (kv_heads, tokens) = keys.shape[:-3], keys.shape[-3:-1]
    refuse.observers(queries.shape[-2], window, tokens)
    if valid is None:
        valid = keys.new_ones(*batch, tokens, dtype=torch.bool)
    refuse.padding(valid, (*batch, tokens))
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    group = queries.shape[-3] // max(1, kv_heads)
    for row in product(*map(range, batch)):
        first = tokens - int(valid[row].sum())
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
    scoring_errors.leads_to("gamma", gamma, scores)
    return Scored(scores, protected)


def cake_preference(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    window: int = 32,
    tau1: float = 1.0,
    tau2: float = 1.0,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Float[Tensor, "*batch"]:
    r"""How much cache a layer asks for: spread over tokens, times change over queries.

    $$P = H^{1/\tau_1}\, V^{1/\tau_2}, \qquad
      H = -\sum_{t < N - W} \sum_q A_{q,t} \log(A_{q,t} + 10^{-10}), \qquad
      V = \sum_{t < N - W} \operatorname{Var}_q A_{q,t}$$

    Args:
        queries: all queries of the layer or the last ones, at least a window of them.
        keys: all its keys, finite.
        window: number $W$ of queries that observe, at least 2.
        tau1: temperature $\tau_1$ of the entropy, finite and above 0.
        tau2: temperature $\tau_2$ of the variance, finite and above 0.
        valid: false at padding, on the left of a row.

    Returns:
        The preference of each batch row, summed over the query heads, in float32: 0 where
        nothing precedes the window.

    Raises:
        TypeError: `queries` or `keys` is not floating point, `valid` not boolean, or `window` not
            an integer.
        ValueError: `queries` or `keys` is not finite or does not fit the other, there are more
            queries than tokens or fewer than the window asks for, `window` is below 2, `tau1` or
            `tau2` is not finite and above 0 or so small that the result is infinite, `valid` has
            another shape than `keys` without heads and width, or a false after a true.

    Source:
        GraphKV-CAKE.

    Reading:
        E-G40, E-G41: computed in float64 and rounded once, because entropy and variance cancel;
        the entropy is at least 0. Sums over heads stand for means: only ratios of layers count.
    """
    attention_errors.attendable(queries, keys, True)
    errors.whole("window", window, 2)
    errors.positive_finite("tau1", tau1)
    errors.positive_finite("tau2", tau2)
    batch, tokens = keys.shape[:-3], keys.shape[-2]
    refuse.observers(queries.shape[-2], window, tokens)
    if valid is None:
        valid = keys.new_ones(*batch, tokens, dtype=torch.bool)
    refuse.padding(valid, (*batch, tokens))
    preference = keys.new_zeros(batch, dtype=torch.float64)
    for row in product(*map(range, batch)):
        first = tokens - int(valid[row].sum())
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
    scoring_errors.leads_to("tau1", tau1, preference)
    return preference


def _variance(seen: Float[Tensor, "queries tokens"]) -> Float[Tensor, " tokens"]:
    """Return the unbiased variance over the queries."""
    return (seen - seen.mean(0)).square().sum(0) / (seen.shape[0] - 1)
