"""SnapKV: the attention mass of the last queries, pooled, for all heads at once."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.attention import attention_drawn
from reference import Scored
from reference.attention import known_of
from reference.precision import widest


@kernel_on_gpu
def snapkv(
    queries: Tensor,
    keys: Tensor,
    window: int,
    kernel: int,
    pooling: str,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
) -> Scored:
    return observed(attention_drawn, queries, keys, window, kernel, pooling, valid, log_sum_exp)


def observed(
    drawn: Callable[[Tensor, Tensor, Tensor | None, Tensor | None, torch.dtype], Tensor],
    queries: Tensor,
    keys: Tensor,
    window: int,
    kernel: int,
    pooling: str,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
) -> Scored:
    """Return SnapKV's scores: the pooled attention mass of the window, computed by `drawn`."""
    tokens, count = keys.shape[-2], queries.shape[-2]
    exact = widest(queries, keys, log_sum_exp)
    scores = keys.new_zeros(keys.shape[:-1], dtype=exact)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    content = max(0, tokens - window)
    protected[..., content:] = True
    if content:
        log_sum = known_of(log_sum_exp, slice(count - window, None))
        mass = drawn(queries[..., count - window :, :], keys, valid, log_sum, exact)
        scores[..., :content] = _pooled(mass[..., :content], kernel, pooling)
    if valid is not None:
        padding = ~valid[..., None, :]
        scores.masked_fill_(padding, 0)
        protected.masked_fill_(padding, False)
    return Scored(scores, protected)


def _pooled(observed: Tensor, kernel: int, pooling: str) -> Tensor:
    """Return mass pooled along tokens and averaged over the group; average pooling sums first."""
    group = max(1, observed.shape[-2])
    if pooling == "average":
        total = observed.sum(-2)
        pooled = F.avg_pool1d(total.flatten(0, -2)[:, None], kernel, 1, kernel // 2).view(
            total.shape
        )
        return pooled / group
    pooled = F.max_pool1d(observed.flatten(0, -2)[:, None], kernel, 1, kernel // 2)
    return pooled.view(observed.shape).sum(-2) / group
