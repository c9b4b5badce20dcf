"""The window kernel of the coverage objective as one slice."""

import torch
from torch import Tensor


def window_kernel(tokens: int, radius: int, dtype: torch.dtype) -> Tensor:
    kernel = torch.zeros(tokens, dtype=dtype)
    kernel[: radius + 1] = 1
    return kernel
