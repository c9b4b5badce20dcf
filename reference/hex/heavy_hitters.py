"""Heavy hitters: the tokens that draw the most attention, and the most recent ones."""

from fractions import Fraction

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.attention import attention_weights, known_of
from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import (
    aligned,
    finite_log_sum_exp,
    grouped,
    nonnegative_at_most,
    wide,
)
from reference.contract.types import Finite, Ratio, Whole
from reference.precision import widest


def spanned(span: int | None, tokens: int) -> None:
    """Refuse a span longer than the keys."""
    if span is not None:
        nonnegative_at_most("span", span, tokens)


@requires(wide, grouped, aligned, spanned, finite_log_sum_exp)
def attention_mass(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    span: Whole | None = None,
    causal: bool = True,
    normalize: bool = False,
    log_sum_exp: Float[Tensor, "*batch query_heads queries"] | None = None,
) -> Float[Tensor, "*batch span"]:
    r"""Sum the attention each token draws, over all heads and queries.

    $$s_t = \sum_{i=1}^{h} \sum_{q=1}^{Q} A_{i,t}^{(q)}, \qquad
      A_{i,t}^{(q)} = \exp\bigl(\ell_{i,t}^{(q)} - L_i^{(q)}\bigr)$$

    Args:
        queries: the queries of all query heads; with `causal` the last one sits at the last key.
        keys: all that the queries attend to, the model's own view of it.
        span: only the last so many tokens are scored, by default all of them. The softmax runs
            over all keys either way.
        causal: whether a query sees only the keys up to its own position.
        normalize: divide by the number of queries that see the token.
        log_sum_exp: $L$ of the scaled logits $\ell$ over all keys that a query sees, as
            `attention_weights` takes it.

    Returns:
        The mass $s$ of each token of the span, at most heads × queries in all; float32, or
        float64 where an argument is.

    Raises:
        ValueError: a logit is out of range.

    Source:
        HEX-3.3a. As printed (§3.3); the weights by $L$, the choice of queries and `normalize` are
        ours (E-H9).

    Reading:
        E-H9, E-H10: the weights are those the model used, over everything it attended, in
        float32 and over all query heads; uniform attention favours early tokens, which
        `normalize` undoes.
    """
    tokens, count = keys.shape[-2], queries.shape[-2]
    exact = widest(queries, keys, log_sum_exp)
    mass = keys.new_zeros(*keys.shape[:-3], tokens, dtype=exact)
    for q in range(count):
        seen = tokens - count + q + 1 if causal else tokens
        query = queries[..., q : q + 1, :]
        log_sum = known_of(log_sum_exp, slice(q, q + 1))
        weights = attention_weights(query, keys[..., :seen, :], causal, log_sum_exp=log_sum)
        for i in range(queries.shape[-3]):
            mass[..., :seen] += weights[..., i, 0, :]
    checks.refuse_overflow("queries", mass)
    if normalize:
        for t in range(tokens):
            mass[..., t] /= max(1, min(count, tokens - t) if causal else count)
    start = 0 if span is None else tokens - span
    return mass[..., start:].clone()


def heavy_hitter_mask(
    mass: Finite[Tensor, "*batch tokens"],
    ratio: Ratio = 0.02,
    recent: Whole = 0,
    outside_recent: bool = False,
) -> Bool[Tensor, "*batch tokens"]:
    r"""Mark the tokens with the largest attention mass, one set for all heads.

    $$\mathrm{Mask}_{\mathrm{hh}}(t) = \mathbb{I}\bigl(t \in \mathrm{top}_k(s)\bigr),
      \qquad k = \lfloor \eta\, n \rfloor$$

    Args:
        mass: attention mass $s$ of `attention_mass`.
        ratio: share $\eta$ of the tokens that are heavy hitters, taken as its decimal text.
        recent: number $r$ of recent tokens, read with `outside_recent` only.
        outside_recent: let none of the last `recent` tokens compete.

    Returns:
        The mask: exactly $k$ tokens a row, or all that compete where they are fewer. On a tie
        the earlier token is the heavier.

    Source:
        HEX-3.3b. In words (§3.3): "our approach identifies the most important tokens globally".
        Rounding, the order of ties and `outside_recent` are ours (E-H7, E-H8).

    Reading:
        E-H7, E-H8, E-H10: $k$ is rounded down, 1 of 96 at 2 %; a heavy hitter may be a recent
        token unless `outside_recent`; one set per layer serves keys and values of all heads.
    """
    tokens = mass.shape[-1]
    rivals = max(0, tokens - recent) if outside_recent else tokens
    count = min(Fraction(str(ratio)) * tokens // 1, rivals)
    order = mass[..., :rivals].sort(dim=-1, descending=True, stable=True).indices
    heavy = torch.zeros_like(mass, dtype=torch.bool)
    for rank in range(count):
        heavy.scatter_(-1, order[..., rank : rank + 1], True)
    return heavy


def recent_mask(tokens: Whole, recent: Whole) -> Bool[Tensor, " tokens"]:
    r"""Mark the last tokens.

    $$\mathrm{Mask}_{\mathrm{local}}(t) = \mathbb{I}(t \ge n - r)$$

    Args:
        tokens: number of tokens $n$.
        recent: length $r$ of the window; a window longer than the cache covers it.

    Returns:
        The mask, on the CPU: none of the tokens at $r = 0$.

    Source:
        HEX-3.3c. In words (§3.3): "Retaining a small fixed window of the latest $r$ tokens".
    """
    return torch.arange(tokens) >= tokens - recent


def h2o_mask(
    mass: Finite[Tensor, "*batch tokens"],
    ratio: Ratio = 0.02,
    recent: Whole = 8,
    outside_recent: bool = False,
) -> Bool[Tensor, "*batch tokens"]:
    r"""Join heavy hitters and recent tokens.

    $$\mathrm{Mask}_{H_2O} = \mathrm{Mask}_{\mathrm{hh}} \vee \mathrm{Mask}_{\mathrm{local}}$$

    Args:
        mass: attention mass $s$ of `attention_mass`.
        ratio: share $\eta$ of the tokens that are heavy hitters.
        recent: length $r$ of the recent window.
        outside_recent: choose the heavy hitters among the other tokens.

    Returns:
        The mask. It has $\lfloor \eta n \rfloor + r$ tokens a row, less those that are both.

    Source:
        HEX-3.3d. As printed (§3.3); `outside_recent` is ours (E-H8).

    Reading:
        E-H8: a plain union, so that a token may be both.
    """
    heavy = heavy_hitter_mask(mass, ratio, recent, outside_recent)
    return heavy | recent_mask(mass.shape[-1], recent).to(mass.device)
