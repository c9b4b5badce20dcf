"""The largest single allocation of a call."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from spec_tests.rounding_noise import DispatchMode


class Largest(DispatchMode):
    """Record the largest number of elements that the result of any operation allocates."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run the operation and record the size of its results."""
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                # a view has its parent's storage: expanding a mask allocates nothing
                room = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, room)
        return result


def largest(work: Any, **inputs: Any) -> int:
    """Return the number of elements of the largest tensor that `work` allocates."""
    with Largest() as watch, torch.no_grad():
        work(**inputs)
    return watch.elements
