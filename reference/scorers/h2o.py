"""H2O: tokens that were attended to most so far, and the most recent ones."""

from itertools import product

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference import attention_errors, errors
from reference.attention import attention_weights
from reference.precision import widen
from reference.scorers import errors as refuse
from reference.scorers.scored import Scored


def h2o_mass(
    queries: Float[Tensor, "*batch query_heads queries width"],
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    mass: Float[Tensor, "*batch kv_heads before"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    r"""Add the attention that each token draws from some more queries.

    $$s_j \leftarrow s_j + \sum_{g=1}^{G} \sum_{q} A^{(g)}_{q, j}$$

    A prompt in one call, a prompt in chunks and single decoding steps are the same: hand over the
    queries that are new, all keys that they see, and the mass so far.

    Args:
        queries: the queries not counted yet; the last one sits at the last key.
        keys: all keys up to there, finite.
        mass: $s$ so far, at least 0, of the first tokens; the tokens after them have drawn none.
        valid: false at padding, on the left of a row: it neither draws attention nor gives any.

    Returns:
        The mass $s$ of each token in float32, or float64 where an argument is. Each query of
        each head adds 1 in all.

    Raises:
        TypeError: `queries`, `keys` or `mass` is not floating point or `valid` not boolean.
        ValueError: `queries` or `keys` is not finite or does not fit the other, there are more
            queries than tokens, `mass` is negative, not finite, longer than `keys` or of other
            heads, `valid` has another shape than `keys` without heads and width, or a false after
            a true.

    Source:
        GraphKV-H2O.

    Reading:
        C3, C4, E-G30: softmax in float32, summed over the query heads of a key head; no column
        is left out of any step.
    """
    attention_errors.attendable(queries, keys, True)
    batch, (kv_heads, tokens) = keys.shape[:-3], keys.shape[-3:-1]
    exact = torch.promote_types(widen(queries).dtype, widen(keys).dtype)
    if mass is None:
        mass = keys.new_zeros(*batch, kv_heads, 0, dtype=exact)
    refuse.carried(mass, keys)
    valid = keys.new_ones(*batch, tokens, dtype=torch.bool) if valid is None else valid
    refuse.padding(valid, (*batch, tokens))
    total = keys.new_zeros(keys.shape[:-1], dtype=torch.promote_types(exact, mass.dtype))
    total[..., : mass.shape[-1]] = mass
    total = torch.where(valid[..., None, :], total, 0)
    count, group = queries.shape[-2], queries.shape[-3] // max(1, kv_heads)
    for row in product(*map(range, batch)):
        first = tokens - int(valid[row].sum())
        for q in range(max(0, first - (tokens - count)), count):
            seen = tokens - count + q + 1
            weights = attention_weights(queries[row][:, q, None], keys[row][:, first:seen])
            for h in range(queries.shape[-3]):
                total[row][h // group, first:seen] += weights[h, 0]
    return total


def h2o(
    mass: Float[Tensor, "*batch kv_heads tokens"],
    keep: int,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    recent: int | None = None,
) -> Scored:
    r"""Score tokens by the attention drawn so far, and protect the recent share of the budget.

    $$S = \{j \ge N - r\} \,\cup\, \operatorname*{top}_{B - r} \{s_j : j < N - r\}$$

    Args:
        mass: $s$ of `h2o_mass`, at least 0.
        keep: budget $B$ of a head, at least 0.
        valid: false at padding, on the left of a row.
        recent: number $r$ of recent tokens, in [0, `keep`]; half of `keep`, rounded down, unless
            given.

    Returns:
        The mass in float32, or float64 where it is, and the last `recent` real tokens protected.
        `retain` with `keep` then takes the heavy hitters from outside the recent tokens.

    Raises:
        TypeError: `mass` is not floating point, `valid` not boolean, or `keep` or `recent` not
            an integer.
        ValueError: `mass` is negative or not finite or has fewer than 2 axes, `keep` is negative,
            `recent` outside [0, `keep`], `valid` has another shape than `mass` without heads, or
            a false after a true.

    Source:
        GraphKV-H2O.

    Reading:
        C3, E-G30: half of the budget is recent, and heavy hitters are the others.
    """
    errors.importance("mass", mass, 2)
    errors.whole("keep", keep)
    recent = keep // 2 if recent is None else recent
    errors.whole("recent", recent, 0, keep)
    rows = (*mass.shape[:-2], mass.shape[-1])
    valid = mass.new_ones(rows, dtype=torch.bool) if valid is None else valid
    refuse.padding(valid, rows)
    tokens, real = mass.shape[-1], valid[..., None, :].expand(mass.shape)
    protected = torch.zeros_like(real)
    for t in range(max(0, tokens - recent), tokens):
        protected[..., t] = real[..., t]
    return Scored(torch.where(real, widen(mass), 0), protected)
