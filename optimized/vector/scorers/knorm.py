"""The lengths of keys as one sum over channels."""

import torch
from torch import Tensor

from reference import Scored, errors
from reference.careful import length
from reference.contract import scanning
from reference.precision import widen


def knorm(keys: Tensor, valid: Tensor | None, shift: bool) -> Scored:
    # contiguous: a row is summed in the same order whatever lies beside it
    keys = widen(keys).contiguous()
    squares = (keys * keys).sum(-1)
    far = ~((squares > 2.0**-80) & (squares < 2.0**120))  # they may have overflowed, or vanished
    lengths = squares.masked_fill(far, 1).sqrt()
    if scanning(far):
        lengths = lengths.masked_scatter(far, length(keys[far]))
    else:
        lengths = torch.where(far, length(keys), lengths)
    errors.in_range("keys", lengths)
    if valid is not None:
        lengths = lengths.masked_fill(~valid[..., None, :], 0)
    longest = lengths.amax(-1, keepdim=True) if shift and lengths.shape[-1] else 0
    scores = longest - lengths
    if valid is not None and shift:
        scores = scores.masked_fill(~valid[..., None, :], 0)
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
