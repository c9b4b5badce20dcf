"""A cache for `transformers` that stores what HEX stores."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized.models import errors as refuse
from optimized.models.attention import dense_attention
from optimized.models.layer import AttendingCache, AttendingLayer


class HexLayer(AttendingLayer):
    """One layer, compressed in blocks; it attends to what `hex_read` restores."""

    def __init__(self, config: optimized.HexConfig, kv: ModuleType) -> None:
        super().__init__()
        self.config, self.kv = config, kv
        self.held: optimized.HexCache | None = None

    def attend(self, query: Tensor, valid: Tensor | None, scale: float) -> Tensor:
        """Add the new tokens and attend to exact new and restored old ones."""
        refuse.no_padding(valid)
        keys, values = self.taken(valid)
        if self.held is None:
            self.held = self.kv.hex_prefill(query, keys, values, self.config)
            return dense_attention(query, keys, values, None, scale)
        out = torch.empty_like(query)
        start = 0
        while start < query.shape[2]:
            stop = min(query.shape[2], start + self.room)
            q, k, v = (x[:, :, start:stop] for x in (query, keys, values))
            past = self.kv.hex_read(self.held)
            old_and_new = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
            out[:, :, start:stop] = dense_attention(q, *old_and_new, None, scale)
            self.held, start = self.kv.hex_append(self.held, q, k, v), stop
        return out

    @property
    def room(self) -> int:
        """How many tokens the residual buffer takes before a block leaves it."""
        assert self.held is not None
        carried = self.config.recent if self.config.carry_recent else 0
        return self.config.block + carried - self.held.residual_keys.shape[-2]

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.held = None


class HexTransformersCache(AttendingCache):
    """The streaming cache of HEX, for `model.generate(past_key_values=...)`.

    Blocks are packed codes, kept entries and scales; attention reads their reconstruction, made
    anew at every call. The first call of the model is the prompt, each later one is appended.

    Args:
        config: the configuration of an attached model.
        settings: the settings of HEX, as `hex_preset` names them.
        kv: `reference` or `optimized`.
    """

    def __init__(
        self,
        config: Any,
        settings: optimized.HexConfig = optimized.HexConfig(),  # noqa: B008
        kv: ModuleType = optimized,
    ) -> None:
        layers = range(config.num_hidden_layers)
        super().__init__(layers=[HexLayer(settings, kv) for _ in layers])
