"""What NumPy does many times as fast as PyTorch on a CPU: selecting, sorting, searching masks."""

import numpy as np
import torch
from torch import Tensor

from reference.contract.enforce import has_memory


def on_cpu(x: Tensor) -> bool:
    """Whether NumPy may compute with a tensor: in the memory of a CPU, and not traced."""
    return x.is_cpu and not torch.compiler.is_compiling() and has_memory(x)


def array(x: Tensor) -> np.ndarray:
    """Return the tensor's numbers as an array that shares its memory."""
    return x.detach().numpy()


def places(mask: Tensor) -> Tensor:
    """Return the places of a mask's true entries in its flattened form."""
    if on_cpu(mask):
        return torch.from_numpy(np.flatnonzero(array(mask)))
    return mask.flatten().nonzero()[:, 0]
