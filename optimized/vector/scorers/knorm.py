"""KNorm: scores by the norms of keys."""

import torch
from torch import Tensor

from optimized._dispatch import checks_values_of
from optimized.vector._by_numpy import on_cpu
from reference import Scored
from reference.contract.checks import finite_unless_its
from reference.precision import widen

# Keys of a block: their one copy in float32 stays in a cache of the processor.
BLOCK = 1 << 12


@checks_values_of("keys")
def knorm(keys: Tensor, valid: Tensor | None, shift: bool) -> Scored:
    lengths = norms(keys)
    finite_unless_its(lengths, "keys", keys)
    if valid is not None:
        lengths = lengths.masked_fill(~valid[..., None, :], 0)
    longest = lengths.amax(-1, keepdim=True) if shift and lengths.shape[-1] else 0
    scores = longest - lengths if shift else -lengths
    if valid is not None and shift:
        scores = scores.masked_fill(~valid[..., None, :], 0)
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


def norms(keys: Tensor) -> Tensor:
    """Return the Euclidean norm of each key, in the precision of statistics."""
    if keys.itemsize > 2 or not on_cpu(keys) or not keys.numel() or keys.requires_grad:
        return widen(keys).norm(dim=-1)
    rows = keys.reshape(-1, keys.shape[-1])
    lengths = rows.new_empty(len(rows), dtype=torch.float32)
    room = rows.new_empty(min(BLOCK, len(rows)), rows.shape[1], dtype=torch.float32)
    for block, into in zip(rows.split(BLOCK), lengths.split(BLOCK), strict=True):
        torch.linalg.vector_norm(room[: len(block)].copy_(block), dim=-1, out=into)
    return lengths.view(keys.shape[:-1])
