"""A cache for `transformers` that gives up entries, and their memory."""

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized.models import errors as refuse
from optimized.models.attention import dense_attention
from optimized.models.layer import AttendingCache, AttendingLayer
from optimized.models.ragged import ragged_attention

# Queries, keys, values and mask of one layer after each call of the model; queries of the new
# tokens, the rest of all tokens so far.
Observer = Callable[[Tensor, Tensor, Tensor, Tensor | None], None]


class EvictionLayer(AttendingLayer):
    """One layer: the entries that survived, and every token since.

    Heads that keep equally many entries share dense tensors with the tokens since; others hold
    theirs one after another in `old`. Keys carry their rotary position, so none is stored.
    """

    def __init__(self) -> None:
        super().__init__()
        self.evicted = False
        self.old: tuple[Tensor, Tensor, Tensor] | None = None
        self.observe: Observer | None = None

    def attend(self, query: Tensor, valid: Tensor | None, scale: float) -> Tensor:
        """Add the new tokens and attend to all that is left."""
        keys, values = self.taken(valid)
        assert self.keys is not None
        assert self.values is not None
        self.keys = torch.cat([self.keys, keys], 2)
        self.values = torch.cat([self.values, values], 2)
        if self.observe is not None:
            self.observe(query, self.keys, self.values, valid)
        valid = self.lasting(valid)
        if self.old is not None:
            new = self.keys, self.values
            return ragged_attention(query, self.old, new, valid, scale)
        return dense_attention(query, self.keys, self.values, valid, scale)

    def lasting(self, valid: Tensor | None) -> Tensor | None:
        """Return the mask of the dense entries: of survivors none is padding."""
        assert self.keys is not None
        if valid is None or not self.evicted:
            return valid
        flags = valid.new_ones(valid.shape[0], self.keys.shape[2])
        since = self.since
        flags[:, flags.shape[1] - since :] = valid[:, valid.shape[1] - since :]
        return flags

    @property
    def since(self) -> int:
        """Number of tokens since the eviction."""
        return self.seen - self.evicted_at

    evicted_at = 0

    def evict(self, kept: Tensor, kv: ModuleType) -> None:
        """Keep the marked entries alone."""
        assert self.keys is not None
        assert self.values is not None
        left = kv.evict(self.keys, self.values, kept)
        if isinstance(left, optimized.DenseCache):
            self.keys, self.values = left.keys, left.values
        else:
            self.old = left.keys, left.values, left.offsets
            self.keys = self.keys[:, :, :0].clone()
            self.values = self.values[:, :, :0].clone()
        self.evicted, self.evicted_at = True, self.seen

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.evicted, self.evicted_at, self.old = False, 0, None


class EvictionCache(AttendingCache):
    """A cache whose entries can be evicted once, after the prompt.

    Until then it is a full cache. Afterwards it goes on at the true positions: `get_seq_length`
    counts the tokens seen, `nbytes` what is stored.
    """

    def __init__(self, config: Any) -> None:
        super().__init__(layers=[EvictionLayer() for _ in range(config.num_hidden_layers)])

    def evict(
        self,
        kept: Sequence[Tensor] | Tensor,
        valid: Tensor | None = None,
        kv: ModuleType = optimized,
    ) -> None:
        """Keep the marked entries and free the others.

        Args:
            kept: for each layer a mask over batch, heads and tokens, as `select` returns it.
            valid: which tokens are no padding, where some are.
            kv: the implementation of `evict`, `reference` or `optimized`.

        Raises:
            TypeError: a mask is not boolean.
            ValueError: masks do not fit the cache or keep padding, or something was evicted
                already.
        """
        layers = self.evictable()
        shapes = [tuple(layer.keys.shape[:-1]) for layer in layers if layer.keys is not None]
        if any(layer.evicted for layer in layers) or len(shapes) != len(layers):
            raise ValueError("cache must be filled and whole, got one that is empty or evicted")
        refuse.masks(list(kept), shapes, valid)
        for layer, one in zip(layers, kept, strict=True):
            layer.evict(one, kv)

    def evictable(self) -> list[EvictionLayer]:
        """Return the layers, as what they are."""
        return [layer for layer in self.layers if isinstance(layer, EvictionLayer)]
