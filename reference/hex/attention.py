"""Attention over a HEX cache: what is read of it."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.attention import attention, attention_weights, scaled_logits
from reference.contract import checks
from reference.contract.enforce import requires
from reference.contract.preconditions import aligned, grouped, left_padded
from reference.contract.types import Finite, FiniteAbove0
from reference.hex.cache import HexCache, read_unrounded
from reference.precision import widest


class HexAttention(NamedTuple):
    """What the queries read, and the attention they hand out to each token, if that was asked for.

    Ours: likewise the log-sum-exp of what each query sees.

    Source:
        HEX-5a.
    """

    output: Float[Tensor, "*batch query_heads queries width"]
    mass: Float[Tensor, "*batch tokens"] | None
    log_sum_exp: Float[Tensor, "*batch query_heads queries"] | None = None


def fits_cache(queries: Tensor, cache: HexCache, valid: Tensor | None, causal: bool) -> None:
    """Refuse more causal queries than the cache has tokens, or flags of another number."""
    compressed = sum(block.dynamic.shape[-1] for block in cache.blocks)
    tokens = compressed + cache.residual_keys.shape[-2]
    aligned(queries, tokens, causal)
    if valid is not None and valid.shape[-1] != tokens:
        wanted = (*valid.shape[:-1], tokens)
        raise ValueError(f"valid must have shape {wanted} to fit cache, got {tuple(valid.shape)}")


@requires(grouped, fits_cache, left_padded)
def hex_attention(
    queries: Finite[Tensor, "*batch query_heads queries width"],
    cache: HexCache,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    causal: bool = True,
    scale: FiniteAbove0 | None = None,
    mass: bool = False,
    log_sum_exp: bool = False,
) -> HexAttention:
    r"""Attention of each query over a HEX cache.

    $$\operatorname{Attn}(q_t, \widehat K, \widehat V)
      = \operatorname{softmax}\Bigl(\frac{q_t \widehat K^\top}{\sqrt{d_h}}\Bigr) \widehat V,
      \qquad s_j = \sum_{i=1}^{h} \sum_t A_{i,j}^{(t)}, \qquad
      L_t = \ln \sum_j \exp\Bigl(\frac{q_t \widehat k_j}{\sqrt{d_h}}\Bigr)$$

    Args:
        queries: $q_t$; the last query sees the last token of the cache.
        cache: the cache; its codes and kept entries stand for $\widehat K$ and $\widehat V$.
        valid: which tokens are no padding; padding is on the left of a row.
        causal: whether a query sees nothing after its own position.
        scale: factor on the logits; $1 / \sqrt{d_h}$ unless given.
        mass: whether to return the attention $s$ that each token draws, as well.
        log_sum_exp: whether to return $L_t$ as well; its sum is over what the query sees.

    Returns:
        The output in the dtype of `queries`, rounded to it once, and the mass and $L_t$ in
        float32, or float64 where an argument is; each is None unless asked for. A query at padding
        sees nothing: its output is 0, and $L_t$ minus infinity.

    Raises:
        ValueError: a logit is out of range.

    Source:
        HEX-3.1a, HEX-3.3a, HEX-5a. As printed (§3.1, §3.3); which queries are added up is ours
        (E-H9). Ours: $L_t$, by which attention to other tokens is merged with it.

    Reading:
        E-A1, E-H9, E-H73: the last query is aligned with the last token; a query's weights run
        over the restored blocks and the residual buffer; a restored entry is code times step plus
        minimum, and not rounded to the dtype of the cache as `hex_read` does.
    """
    keys, values = read_unrounded(cache)
    tokens, count = keys.shape[-2], queries.shape[-2]
    exact = widest(queries, keys)
    output = torch.zeros_like(queries)
    sums = torch.full_like(queries[..., 0], -torch.inf, dtype=exact)
    drawn = keys.new_zeros(*keys.shape[:-3], tokens, dtype=exact)
    for row in np.ndindex(*keys.shape[:-3]):
        first = 0 if valid is None else int((~valid[row]).sum())
        late = max(0, count - tokens + first) if causal else 0
        part = queries[row][:, late:], keys[row][:, first:]
        output[row][:, late:] = attention(*part, values[row][:, first:], causal, scale)
        if mass:
            drawn[row][first:] = attention_weights(*part, causal, scale).sum((0, 1))
        if log_sum_exp:
            sums[row][:, late:] = scaled_logits(*part, causal, scale).logsumexp(-1)
    checks.refuse_overflow("queries", output.abs())
    return HexAttention(output, drawn if mass else None, sums if log_sum_exp else None)
