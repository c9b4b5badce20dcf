"""The base class of a cache layer that computes its own attention, and what such layers share."""

import copyreg
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from importlib import import_module
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only
from transformers.cache_utils import CacheLayerMixin

from optimized.models.attention import MarkedMaskOffset, Softmax

ROOM = 32
"""Entries per free place of a buffer to which single tokens are appended; it has one at least."""

# Layers hold `reference` or `optimized`: a saved cache names the module.
copyreg.pickle(ModuleType, lambda module: (import_module, (module.__name__,)))


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Return a context without autocast, for functions that choose their own precision."""
    kind = x.device.type
    on = torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if on else nullcontext()


def require_batch_size(new: Tensor, batch: int) -> None:
    """Refuse tokens with another batch size than the cache's."""
    if new.shape[0] != batch:
        raise ValueError(
            f"input_ids must have the cache's batch size {batch}, got {new.shape[0]}: "
            "`cache.batch_repeat_interleave` and `batch_select_indices` change the rows of a cache"
        )


class LastingLayer:
    """A cache layer that changes no tensor in place that a copy shares."""

    def settle(self) -> None:
        """Leave memory that is written in place, before a copy shares the tensors."""

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        raise NotImplementedError

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return an independent copy; it shares tensors, which are not changed in place."""
        self.settle()
        memo[id(self)] = duplicate = copy(self)
        return duplicate


class AttendingLayer(LastingLayer, CacheLayerMixin):
    """A cache layer that computes the attention over its own entries.

    `update` holds the new tokens and returns the layer itself in place of keys and values. Our
    attention function then calls `attend`, which adds the tokens and returns their output. Any
    other attention function uses the layer as a tensor, which raises an error.
    """

    is_sliding = False
    supports_early_init = False
    expands = False
    """Whether it stores latent rows, which are expanded to keys and values."""
    can_remove_last = False
    """Whether it stores new tokens exactly, so that the last ones can be removed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0
        self.steady = False
        """Whether the values of a call need no check: `AttendingCache.continued_positions`."""
        self.held: Any = None
        """What the layer stores in place of keys and values, if it does."""
        self.arriving: tuple[Tensor, Tensor] | None = None
        self.hidden: Tensor | None = None
        self.buffers: dict[str, tuple[Tensor, Tensor]] = {}
        """`keys` and `values` that are the first tokens of a longer buffer, and the buffer."""

    def settle(self) -> None:
        """Leave the buffers, whose free room the next step writes in place."""
        self.buffers = {}

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Create empty keys and values with the shape, dtype and device of the new ones."""
        none = key_states[:, :, :0].to(value_states.dtype)
        self.keys, self.values = none.clone(), value_states[:, :, :0].clone()
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Hold the keys and values of new tokens until `attend` adds them; return the layer."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys = self.whole[0]
        require_batch_size(key_states, len(keys))
        if value_states.dtype.itemsize < keys.dtype.itemsize:
            raise ValueError(
                f"model must compute in the type of the cache, {keys.dtype}, got "
                f"{value_states.dtype}: make the cache after the model is converted"
            )
        self.arriving = key_states, value_states
        return self, self

    @property
    def whole(self) -> tuple[Tensor, Tensor]:
        """Dense keys and values; before an eviction, those of all tokens."""
        if self.keys is None or self.values is None:
            raise ValueError("cache must hold a token, got an empty one: it has no sizes yet")
        return self.keys, self.values

    def beside(self, x: Any) -> Any:
        """Return a tensor, or those of a record, on the device of the keys; None as it is."""
        device = self.whole[0].device
        return tree_map_only(Tensor, lambda tensor: tensor.to(device), x)

    def append_arriving(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Append the new tokens to dense keys and values; return them as `take_arriving` does."""
        keys, values, hidden = self.take_arriving()
        self.keys, self.values = self.appended("keys", keys), self.appended("values", values)
        return keys, values, hidden

    def appended(self, name: str, new: Tensor) -> Tensor:
        """Return `keys` or `values` with new entries behind them.

        From the second of several calls with few of them they are written into a buffer with room,
        unless gradients may go through what was read of it.
        """
        earlier = getattr(self, name)
        tokens, after = earlier.shape[2], earlier.shape[2] + new.shape[2]
        room = 1 + after // ROOM
        anew = torch.is_grad_enabled() or torch.compiler.is_compiling()
        if anew or new.shape[2] > room or new.dtype != earlier.dtype:
            self.settle()
            return torch.cat([earlier, new], 2)
        view, buffer = self.buffers.get(name, (None, earlier))
        if view is not earlier:
            view = buffer = torch.cat([earlier, new], 2)
        else:
            closed = buffer.is_inference() and not torch.is_inference_mode_enabled()
            if after > buffer.shape[2] or closed:
                buffer = earlier.new_empty(*earlier.shape[:2], after + room, earlier.shape[3])
                buffer[:, :, :tokens] = earlier
            buffer[:, :, tokens:after] = new
            view = buffer[:, :, :after]
        self.buffers = self.buffers | {name: (view, buffer)}
        return view

    def take_arriving(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return keys, values and hidden states of the new tokens, and count them as seen.

        The layer then holds them no longer, so a second call fails.
        """
        assert self.arriving is not None
        (keys, values), self.arriving = self.arriving, None
        hidden, self.hidden = self.hidden, None
        self.seen += keys.shape[2]
        # Under autocast the projected values are narrower than the rotated keys.
        return keys.to(values.dtype), values, hidden

    def remove_last(self, count: int) -> None:
        """Remove the last tokens, of those that came after the prompt."""
        keys, values = self.whole
        left = keys.shape[2] - count
        self.keys = keys[:, :, :left]
        self.values = self.keys if values is keys else values[:, :, :left]
        self.seen -= count

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Return the output for the queries of the new tokens."""
        raise NotImplementedError

    def get_seq_length(self) -> int:
        """Return how many tokens were seen, kept or evicted: the next rotary position."""
        return self.seen

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the length of a mask over all tokens seen, and where it starts."""
        return self.seen + query_length, MarkedMaskOffset(0)

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def reset(self) -> None:
        """Forget every token."""
        self.keys = self.values = self.held = self.arriving = self.hidden = None
        self.is_initialized, self.seen, self.steady, self.buffers = False, 0, False, {}

    def __getattr__(self, name: str) -> Any:
        """Raise an error where an attention function uses the layer as a tensor."""
        if name.startswith("_") or not hasattr(torch.Tensor, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        raise ValueError(
            "model must attend through this package over a cache of it: call "
            "`optimized.models.attach(model)`, and again after its attention is changed"
        )
