"""The store that draws without loops."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from optimized.vector.hex.expander import expander_mask
from reference import MaskStore as SlowMaskStore


class MaskStore(SlowMaskStore):
    """The store of the reference over the vectorised generator."""

    def __init__(
        self,
        directory: str | Path | None = None,
        capacity: int = 8,
        generate: Callable[..., Tensor] = expander_mask,
    ):
        super().__init__(directory, capacity, generate)
