"""The mean of all rotations at once."""

import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from reference.precision import widen


@doubles_on_cpu
def mean_rotation(frequencies: Tensor, start: int | Tensor, future: int) -> Tensor:
    first = torch.as_tensor(start, dtype=torch.float64, device=frequencies.device)
    steps = torch.arange(future, dtype=torch.float64, device=frequencies.device)
    angles = (first[..., None] + steps)[..., None] * frequencies.double()
    cosines, sines = angles.cos().mean(-2).diag_embed(), angles.sin().mean(-2).diag_embed()
    upper, lower = torch.cat([cosines, -sines], -1), torch.cat([sines, cosines], -1)
    return torch.cat([upper, lower], -2).to(widen(frequencies).dtype)
