"""Attention mass, blocks of queries at a time."""

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.attention import attention_drawn
from reference.attention import known_of
from reference.precision import widen, widest
from reference.scorers.scored import Scored

# queries at a time, so that the memory of weights does not grow with the number of queries
QUERIES = 128


@kernel_on_gpu
def h2o_mass(
    queries: Tensor,
    keys: Tensor,
    mass: Tensor | None,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
) -> Tensor:
    tokens, count = keys.shape[-2], queries.shape[-2]
    exact = widest(queries, keys, log_sum_exp)
    total = keys.new_zeros(keys.shape[:-1], dtype=exact)
    if mass is not None:
        total = total.to(torch.promote_types(exact, mass.dtype))
        total[..., : mass.shape[-1]] = mass
    if valid is not None:
        total.masked_fill_(~valid[..., None, :], 0)
    for start in range(0, count, QUERIES):
        stop = min(count, start + QUERIES)
        seen = tokens - count + stop
        real = None if valid is None else valid[..., :seen]
        log_sum = known_of(log_sum_exp, slice(start, stop))
        new = queries[..., start:stop, :]
        block = attention_drawn(new, keys[..., :seen, :], real, log_sum, exact)
        total[..., :seen] += block.sum(-2)
    return total


def h2o(mass: Tensor, keep: int, valid: Tensor | None, recent: int | None) -> Scored:
    recent = keep // 2 if recent is None else recent
    scores = widen(mass).clone()
    protected = torch.zeros_like(scores, dtype=torch.bool)
    protected[..., max(0, mass.shape[-1] - recent) :] = True
    if valid is not None:
        padding = ~valid[..., None, :]
        scores.masked_fill_(padding, 0)
        protected.masked_fill_(padding, False)
    return Scored(scores, protected)
