"""The window kernel of the coverage objective as one comparison."""

import torch
from torch import Tensor


def window_kernel(tokens: int, radius: int, dtype: torch.dtype) -> Tensor:
    return (torch.arange(tokens) <= radius).to(dtype)
