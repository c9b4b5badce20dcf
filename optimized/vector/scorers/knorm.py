"""KNorm: scores by the norms of keys."""

import torch
from torch import Tensor

from optimized._dispatch import checks_values_of
from reference import Scored
from reference._validation.checks import finite_unless_its
from reference.precision import widen

# Keys of a block: their copy in float32 stays in a cache of the processor.
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
    if keys.itemsize > 2 or keys.is_cuda or torch.compiler.is_compiling() or not keys.numel():
        return widen(keys).norm(dim=-1)
    rows = keys.reshape(-1, keys.shape[-1]).split(BLOCK)
    return torch.cat([block.float().norm(dim=-1) for block in rows]).view(keys.shape[:-1])
