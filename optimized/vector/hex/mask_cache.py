"""The mask store over the vectorised generator."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from optimized.vector.hex.expander import expander_mask
from optimized.vector.hex.spectrum import is_ramanujan
from reference import MaskStore as SlowMaskStore


class MaskStore(SlowMaskStore):
    """The mask store of the reference, with the vectorised generator as default."""

    own_generator = staticmethod(expander_mask)
    certified = staticmethod(is_ramanujan)

    def __init__(
        self,
        directory: str | Path | None = None,
        capacity: int = 8,
        generate: Callable[..., Tensor] = expander_mask,
    ):
        super().__init__(directory, capacity, generate)
