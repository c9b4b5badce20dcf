"""Attention mass, blocks of queries at a time."""

import torch
from torch import Tensor

from optimized._dispatch import kernel_on_gpu
from optimized.vector.attention import mass_by_blocks
from reference.precision import widen, widest
from reference.scorers.scored import Scored


@kernel_on_gpu
def h2o_mass(
    queries: Tensor,
    keys: Tensor,
    mass: Tensor | None,
    valid: Tensor | None,
    log_sum_exp: Tensor | None,
) -> Tensor:
    exact = widest(queries, keys, log_sum_exp)
    total = keys.new_zeros(keys.shape[:-1], dtype=exact)
    if mass is not None:
        total = total.to(torch.promote_types(exact, mass.dtype))
        total[..., : mass.shape[-1]] = mass
    if valid is not None:
        total.masked_fill_(~valid[..., None, :], 0)
    for seen, drawn in mass_by_blocks(queries, keys, valid, log_sum_exp, exact):
        total[..., :seen] += drawn.sum(-2)
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
