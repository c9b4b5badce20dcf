"""Expected attention: what Gaussian queries of the near future would look at."""

import math

import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import left_padded, multiple, wide
from reference.contract.types import Finite, FiniteNonNegative, Whole
from reference.precision import widest
from reference.scorers._padding import row_starts, valid_or_all
from reference.scorers.query_statistics import QueryStatistics
from reference.scorers.scored import Scored


def of_groups(query_heads: int, kv_heads: int) -> None:
    """Refuse statistics of heads that are no multiple of the key heads."""
    multiple("statistics", query_heads, kv_heads)


@requires(wide, of_groups, left_padded)
def expected_attention(
    statistics: QueryStatistics,
    keys: Finite[Tensor, "*batch kv_heads tokens width"],
    values: Finite[Tensor, "*batch kv_heads tokens width"],
    rotation: Finite[Tensor, "width width"] | Finite[Tensor, "*batch width width"],
    sinks: Whole = 4,
    epsilon: FiniteNonNegative = 0.0,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Scored:
    r"""Score each token by the attention that queries to come are expected to pay its value.

    $$s_j = \lVert v_j \rVert_2 \Bigl( \varepsilon + \frac1G \sum_{g=1}^{G}
      \operatorname*{softmax}_{j > a} z^{(g)}_j \Bigr), \qquad
      z_j = \frac{k_j^\top \bar R \mu}{\sqrt d}
      + \frac{k_j^\top \bar R \Sigma \bar R^\top k_j}{2d}$$

    Args:
        statistics: $\mu$ and $\Sigma$ of `query_statistics`, before the rotary embedding.
        keys: keys as the cache holds them, after the rotary embedding.
        values: values $v$ of the same tokens.
        rotation: $\bar R$ of `mean_rotation`, one for all or one a batch row; the identity where
            the model has no rotary embedding.
        sinks: how many tokens $a$ at the start of a row are protected and left out of the softmax.
        epsilon: $\varepsilon$: with a large one only values count.
        valid: false at padding, on the left of a row.

    Returns:
        The scores of each key head in float32, or float64 where an argument is: at least 0,
        unbounded, and 0 at the sinks.

    Source:
        HubKV-ExpectedAttention. From elsewhere: Devoto et al.; the paper names expected attention
        and does not define it (E-U42).

    Reading:
        C3, C4, E-U42: the sinks are protected by the mask and not by the largest score.
    """
    heads, width = statistics.mean.shape[-2:]
    exact = widest(keys, statistics.mean, statistics.covariance, values, rotation)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    counted = torch.zeros_like(protected)
    group = heads // max(1, keys.shape[-3])
    for row, first in row_starts(valid_or_all(valid, keys)):
        start = first + sinks
        protected[row][:, first:start] = True
        turn = (rotation[row] if rotation.ndim > 2 else rotation).to(exact)
        for h in range(heads):
            key = keys[row][h // group, start:].to(exact)
            mean = turn @ statistics.mean[row][h].to(exact)
            covariance = turn @ statistics.covariance[row][h].to(exact) @ turn.mT
            logits = key @ mean / math.sqrt(width)
            logits += ((key @ covariance) * key).sum(-1) / (2 * width)
            scores[row][h // group, start:] += logits.softmax(-1) / group
        counted[row][:, start:] = True
    scores = torch.where(counted, (scores + epsilon) * values.to(exact).norm(dim=-1), 0)
    return Scored(scores, protected)
