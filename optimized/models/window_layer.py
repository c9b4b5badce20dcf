"""A layer with a sliding window, which is not compressed."""

from typing import Any

from torch import Tensor
from transformers.cache_utils import DynamicSlidingWindowLayer

from optimized.models.attending_layer import LastingLayer


class WindowLayer(LastingLayer, DynamicSlidingWindowLayer):
    """A sliding-window layer of `transformers`, uncompressed.

    It holds one token more than the next query sees, so that the last one can be removed.
    """

    def __init__(self, sliding_window: int) -> None:
        super().__init__(sliding_window)
        self.held: list[Tensor] = []

    def hold(self, tensors: list[Tensor]) -> None:
        """Store keys and values of a window and one token more."""
        self.held = tensors
        self.keys, self.values = (x[:, :, -self.sliding_window + 1 :] for x in tensors)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Append new tokens; return the keys and values held before, followed by the new ones."""
        whole, size = super().update(key_states, value_states), self.sliding_window
        # A view would keep the whole longer tensor in memory.
        self.hold([x if x.shape[2] <= size else x[:, :, -size:].clone() for x in whole])
        return whole

    def take_back(self) -> None:
        """Remove the last token."""
        self.keys, self.values = (x[:, :, :-1] for x in self.held)
        self.cumulative_length -= 1

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        self.hold([x[rows] for x in self.held])

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.held = []
