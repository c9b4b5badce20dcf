"""What the layers of our caches have in common: they attend themselves, and cannot be undone."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

import optimized
from optimized.models import errors as refuse
from optimized.models.attention import NAME


class AttendingLayer(CacheLayerMixin):
    """One layer: `update` takes the new tokens, `attend` adds them and answers their queries.

    `update` returns the layer itself in place of keys and values. Our attention function calls
    `attend`; any other touches the layer as if it were a tensor, and is told what is wrong.
    """

    is_sliding = False
    supports_early_init = False

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.arriving: tuple[Tensor, Tensor] | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Start with no tokens of the right kind."""
        self.keys, self.values = key_states[:, :, :0].clone(), value_states[:, :, :0].clone()
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Take the keys and values of new tokens."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        refuse.joins(key_states, self.keys.shape[0])
        self.arriving = key_states, value_states
        return self, self

    def taken(self) -> tuple[Tensor, Tensor]:
        """Hand out the new tokens, once, and count them as seen."""
        assert self.arriving is not None
        (keys, values), self.arriving = self.arriving, None
        self.seen += keys.shape[2]
        return keys, values

    def attend(self, query: Tensor, valid: Tensor | None, scale: float) -> Tensor:
        """Return the output for the queries of the new tokens."""
        raise NotImplementedError

    def get_seq_length(self) -> int:
        """Return how many tokens were seen, kept or not: rotary positions go on from there."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of a mask over all tokens seen, and where it starts."""
        return self.seen + query_length, 0

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def reset(self) -> None:
        """Forget every token."""
        self.keys = self.values = self.arriving = None
        self.is_initialized, self.seen = False, 0

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Refuse beam search."""
        del beam_idx
        refuse.unsupported("beam search (num_beams > 1)", "admissible: greedy and sampling")

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to take tokens back."""
        del tokens_to_remove
        refuse.unsupported("assisted decoding (crop)", "admissible: greedy and sampling")

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Refuse to repeat rows."""
        del repeats
        refuse.unsupported("repeating batch rows", "repeat the prompts instead")

    def batch_select_indices(self, indices: Tensor) -> None:
        """Refuse to drop rows."""
        del indices
        refuse.unsupported("selecting batch rows", "select among the prompts instead")

    def __deepcopy__(self, memo: dict[int, Any]) -> "AttendingLayer":
        """Return a layer that goes on by itself: tensors are shared, never changed in place."""
        copy = object.__new__(type(self))
        vars(copy).update(vars(self))
        memo[id(self)] = copy
        return copy

    def __getattr__(self, name: str) -> Any:
        """Tell an attention function that takes the layer for a tensor what it must be."""
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise ValueError(
            f"model must use attn_implementation {NAME!r} with a {type(self).__name__}: "
            "call `optimized.models.attach(model)` first"
        )


class AttendingCache(Cache):
    """A cache of such layers, with its size in bytes."""

    @property
    def nbytes(self) -> int:
        """Bytes of every storage the cache keeps alive."""
        return optimized.stored_bytes(self)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Forget, when the context ends, all that was read within it.

        Ask several questions of one compressed prompt this way: tensors are never changed in
        place, so nothing is copied.
        """
        before = [vars(layer).copy() for layer in self.layers]
        try:
            yield
        finally:
            for layer, state in zip(self.layers, before, strict=True):
                vars(layer).clear()
                vars(layer).update(state)
