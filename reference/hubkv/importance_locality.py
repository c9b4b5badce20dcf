"""How importance clusters: what the paper's observations measure on scores and weights."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import nonnegative_at_most
from reference.contract.types import Finite, Importance, Whole
from reference.hubkv.refine import protected_mask
from reference.precision import widen


def reached(distances: int, tokens: int) -> None:
    """Refuse a distance that no two tokens are apart."""
    nonnegative_at_most("distances", distances, tokens - 1)


@requires(reached)
def autocorrelation(
    values: Finite[Tensor, "*batch tokens"], distances: Whole
) -> Float[Tensor, "*batch {distances}+1"]:
    r"""Correlate a sequence with itself, shifted.

    $$R(d) = \frac{\mathbb{E}_i[(s_i - \bar s)(s_{i+d} - \bar s)]}{\mathbb{E}_i[(s_i - \bar s)^2]}$$

    Args:
        values: the sequence $s$.
        distances: largest distance $d$, below the number of tokens $n$.

    Returns:
        $R(0), \dots, R(d)$, in float32, or float64 where `values` are. $R(0)$ is 1; the others
        may leave [-1, 1], because each averages over its own $n - d$ pairs. A constant sequence
        gives 0 throughout.

    Source:
        HubKV-Obs2. As printed (I); the mean runs over the pairs there are (E-U21).

    Reading:
        E-U21: the mean runs over the $n - d$ pairs there are; for a constant sequence 0/0 counts
        as 0.
    """
    tokens = values.shape[-1]
    values = widen(values)
    centred = values - values.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1)
    correlations = [
        (centred[..., : tokens - d] * centred[..., d:]).mean(-1) / variance
        for d in range(distances + 1)
    ]
    constant = (values == values[..., :1]).all(-1)  # a rounded mean may leave it a variance
    return torch.where(constant[..., None], 0, torch.stack(correlations, -1))


def asking(queries: int, tokens: int) -> None:
    """Refuse weights of no query, or of more queries than tokens."""
    if not 0 < queries <= tokens:
        raise ValueError(f"number of queries in weights must be in [1, {tokens}], got {queries}")


@requires(reached, asking)
def distance_profile(
    weights: Importance[Tensor, "*heads queries tokens"], distances: Whole = 128
) -> Float[Tensor, "*heads {distances}+1"]:
    r"""Average the attention weight over all pairs of a query and a key at a distance.

    $$a(d) = \mathbb{E}_{(q, t)\,:\, p_q - t = d}\bigl[A_{q,t}\bigr],
      \qquad p_q = n - n_q + q$$

    Args:
        weights: attention weights $A$ of $n_q$ queries over $n$ tokens; the queries are the last
            positions.
        distances: largest distance $d$, below the number of tokens.

    Returns:
        $a(0), \dots, a(d)$, in float32, or float64 where `weights` are. $a(0)$ is the mean weight
        of a token on itself.

    Source:
        HubKV-I. In words (I): "We also store layer-wise distance profiles up to distance 128". What
        a profile is, is ours (E-U33).

    Reading:
        E-U33: the paper stores such profiles and does not define them.
    """
    queries, tokens = weights.shape[-2:]
    weights = widen(weights)
    profile = weights.new_zeros(*weights.shape[:-2], distances + 1)
    for d in range(distances + 1):
        seen = [(q, tokens - queries + q - d) for q in range(queries)]
        pairs = [weights[..., q, t] for q, t in seen if t >= 0]
        profile[..., d] = torch.stack(pairs).mean(0)
    return profile


def asked(content: Tensor | None, queries: int, tokens: int) -> None:
    """Refuse a content region without any of the queries."""
    content = ~protected_mask(tokens) if content is None else content
    checks.check_any_true("content at the queries", content[tokens - queries :])


@requires(asking, asked)
def attention_density(
    weights: Importance[Tensor, "*heads queries tokens"],
    content: Bool[Tensor, " tokens"] | None = None,
) -> Float[Tensor, "*heads tokens"]:
    r"""Average the attention that each key draws from the queries of the content.

    $$a_{\ell,h}(j) = |\mathcal{Q}|^{-1} \sum_{i \in \mathcal{Q}} A_{\ell,h}(i, j),
      \qquad \mathcal{Q} = \{ i : p_i \in \mathcal{C} \}, \quad p_i = n - n_q + i$$

    Args:
        weights: attention weights $A$ of $n_q$ queries over $n$ tokens; the queries are the last
            positions.
        content: true at the content region $\mathcal{C}$; by default all but four sinks and the
            recent $\lfloor 0.02\,n \rfloor$ tokens.

    Returns:
        The density $a$ of every key, in float32, or float64 where `weights` are. `content_series`
        cuts out that of the content.

    Source:
        HubKV-K. As printed (I), where $\mathcal{Q}$ is "content query positions".

    Reading:
        E-U47: weights are those of the whole softmax, and each query counts once.
    """
    queries, tokens = weights.shape[-2:]
    content = ~protected_mask(tokens) if content is None else content
    weights = widen(weights)
    content_queries = [i for i in range(queries) if content[tokens - queries + i]]
    density = weights.new_zeros(*weights.shape[:-2], tokens)
    for i in content_queries:
        density = density + weights[..., i, :]
    return density / len(content_queries)


def trimmable(trimmed: int, tokens: int, sinks: int, recent: int | None) -> None:
    """Refuse more tokens trimmed than the content region has."""
    content = max(0, tokens - sinks - (tokens // 50 if recent is None else recent))
    nonnegative_at_most("trimmed", trimmed, content)


@requires(trimmable)
def content_series(
    values: Float[Tensor, "*batch tokens"],
    trimmed: Whole = 0,
    sinks: Whole = 4,
    recent: Whole | None = None,
) -> Float[Tensor, "*batch content"]:
    r"""Cut a sequence to the content region, without its earliest tokens.

    $$(v_i)_{i \in \mathcal{C},\; i \ge \min \mathcal{C} + c}, \qquad
      \mathcal{C} = \{ i : P_i = 0 \}$$

    Args:
        values: a number for each token: scores, densities.
        trimmed: how many of the earliest content tokens go too, $c$; the paper trims 100 of
            attention densities and none of scores.
        sinks: how many tokens at the start are attention sinks.
        recent: how many tokens at the end are the recent window; by default $\lfloor 0.02\,T
            \rfloor$.

    Returns:
        The values of the content, in order: of 2048 tokens 2004, or 1904 trimmed by 100.

    Source:
        HubKV-K, HubKV-Obs1, HubKV-Obs2, HubKV-Obs3. In words (I): "trims the earliest 100 content
        tokens to reduce prompt-prefix bias".
    """
    content = (~protected_mask(values.shape[-1], sinks, recent)).nonzero()[:, 0]
    return values.index_select(-1, content[trimmed:].to(values.device))
