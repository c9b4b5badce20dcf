"""H2O: tokens that were attended to most so far, and the most recent ones."""

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
    nonnegative_at_most,
    wide,
)
from reference.contract.types import Finite, Importance, Whole
from reference.hex.heavy_hitters import recent_mask
from reference.precision import widen, widest
from reference.scorers._padding import row_starts, valid_or_all
from reference.scorers.scored import Scored


def mass_no_longer(before: int | None, tokens: int) -> None:
    """Refuse a mass of more tokens than there are keys."""
    if before is not None and before > tokens:
        raise ValueError(f"mass must be of at most the {tokens} tokens of keys, got {before}")


@requires(wide, grouped, aligned, mass_no_longer, left_padded, finite_log_sum_exp)
def h2o_mass(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    mass: Importance[Tensor, "*batch kv_heads before"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    log_sum_exp: Float[Tensor, "*batch query_heads queries"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    r"""Add the attention that each token draws from some more queries.

    $$s_j \leftarrow s_j + \sum_{g=1}^{G} \sum_{q} A^{(g)}_{q, j}, \qquad
      A^{(g)}_{q, j} = \exp\bigl(\ell^{(g)}_{q, j} - L^{(g)}_q\bigr)$$

    A prompt in one call, a prompt in chunks and single decoding steps are the same: hand over the
    queries that are new, all keys that they see, and the mass so far.

    Args:
        queries: the queries not counted yet; the last one sits at the last key.
        keys: all keys up to there.
        mass: $s$ so far, of the first tokens; the tokens after them have drawn none.
        valid: false at padding, on the left of a row: it neither draws attention nor gives any.
        log_sum_exp: $L$ of the scaled logits $\ell$ of these queries, as `attention_weights` takes
            it; what stands at padding is not read.

    Returns:
        The mass $s$ of each token in float32, or float64 where an argument is. Each query of
        each head adds 1 in all.

    Source:
        GraphKV-H2O. From elsewhere: Zhang et al.; the paper names H2O as cumulative attention and
        does not define it (E-G30).

    Reading:
        C3, C4, E-G30: softmax in float32, summed over the query heads of a key head; no column
        is left out of any step.
    """
    *batch, kv_heads, tokens, _ = keys.shape
    exact = widest(queries, keys, log_sum_exp)
    mass = keys.new_zeros(*batch, kv_heads, 0, dtype=exact) if mass is None else mass
    valid = valid_or_all(valid, keys)
    total = keys.new_zeros(keys.shape[:-1], dtype=torch.promote_types(exact, mass.dtype))
    total[..., : mass.shape[-1]] = mass
    total = torch.where(valid[..., None, :], total, 0)
    count, group = queries.shape[-2], queries.shape[-3] // max(1, kv_heads)
    for row, first in row_starts(valid):
        for q in range(max(0, first - (tokens - count)), count):
            seen = tokens - count + q + 1
            query, cache = queries[row][:, q, None], keys[row][:, first:seen]
            log_sum = known_of(log_sum_exp, slice(q, q + 1), row)
            weights = attention_weights(query, cache, log_sum_exp=log_sum)
            for h in range(queries.shape[-3]):
                total[row][h // group, first:seen] += weights[h, 0]
    return total


def recent_within(recent: int | None, keep: int) -> None:
    """Refuse more recent tokens than the budget."""
    if recent is not None:
        nonnegative_at_most("recent", recent, keep)


@requires(recent_within, left_padded)
def h2o(
    mass: Importance[Tensor, "*batch kv_heads tokens"],
    keep: Whole,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    recent: Whole | None = None,
) -> Scored:
    r"""Score tokens by the attention drawn so far, and protect the recent share of the budget.

    $$S = \{j \ge N - r\} \,\cup\, \operatorname*{top}_{B - r} \{s_j : j < N - r\}$$

    Args:
        mass: $s$ of `h2o_mass`.
        keep: budget $B$ of a head.
        valid: false at padding, on the left of a row.
        recent: number $r$ of recent tokens, in [0, `keep`]; half of `keep`, rounded down, unless
            given.

    Returns:
        The mass in float32, or float64 where it is, and the last `recent` real tokens protected.
        `retain` with `keep` then takes the heavy hitters from outside the recent tokens.

    Source:
        GraphKV-H2O. From elsewhere: Zhang et al.; the paper names H2O and does not define it. Half
        of the budget for $r$ is ours (E-G30).

    Reading:
        C3, E-G30: half of the budget is recent, and heavy hitters are the others.
    """
    recent = keep // 2 if recent is None else recent
    real = valid_or_all(valid, mass[..., None])[..., None, :].expand(mass.shape)
    last = recent_mask(mass.shape[-1], recent).to(mass.device)
    return Scored(torch.where(real, widen(mass), 0), real & last)
