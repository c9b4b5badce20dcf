"""A cache for `transformers` that stores what HEX stores."""

from collections.abc import Callable, Sequence
from inspect import unwrap
from types import ModuleType
from typing import Any

from torch import Tensor

import optimized
from optimized import Scored, kernels
from optimized._dispatch import on_gpu
from optimized.layout import PackedCache
from optimized.models import errors as refuse
from optimized.models.attention import dense_attention
from optimized.models.layer import AttendingCache, AttendingLayer, exactly
from optimized.models.prefill import Prefilled
from reference.contract import contract

checked = contract(unwrap(optimized.hex_decode))


class HexLayer(AttendingLayer):
    """One layer, compressed in blocks; what comes after the prompt is read by `hex_decode`.

    On a GPU it is held in the layout of the kernels, and blocks are added in place.
    """

    def __init__(self, config: optimized.HexConfig, kv: ModuleType) -> None:
        super().__init__()
        self.config, self.kv = config, kv
        self.held: optimized.HexCache | PackedCache | None = None

    def attend(self, query: Tensor, valid: Tensor | None, scale: float) -> Tensor:
        """Add the new tokens and attend to exact new and restored old ones."""
        del valid
        keys, values, _ = self.taken()
        query = query.to(keys.dtype)
        with exactly(query):
            if self.held is None:
                self.held = self.kv.hex_prefill(query, keys, values, self.config)
                return dense_attention(query, keys, values, None, scale)
            output, self.held = self.decode(self.held, query, keys, values)
        return output

    def decode(
        self, held: optimized.HexCache | PackedCache, query: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, optimized.HexCache | PackedCache]:
        """Add tokens and answer their queries, by kernels where there are some."""
        there = self.kv is optimized and "hex_attention" in kernels.LAUNCHERS
        if not there or not on_gpu((query, held)):
            assert isinstance(held, optimized.HexCache)
            return self.kv.hex_decode(held, query, keys, values)
        from optimized.kernels._hex_stream import decoded

        checked((held.rest if isinstance(held, PackedCache) else held, query, keys, values), {})
        return decoded(held, query, keys, values)

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.held = None


class HexTransformersCache(AttendingCache):
    """The streaming cache of HEX, for `model.generate(past_key_values=...)`.

    Blocks are packed codes, kept entries and scales, and attention reads them as they are. The
    first call of the model is the prompt, each later one is appended.

    Args:
        config: the configuration of an attached model, or another cache of its layers.
        settings: the settings of HEX, as `hex_preset` names them.
        kv: `reference` or `optimized`.

    Raises:
        TypeError: `settings` is no `HexConfig` or of wrong parts.
        ValueError: a setting is outside its range, or no mask of a block has its density.
    """

    def __init__(
        self,
        config: Any,
        settings: optimized.HexConfig = optimized.HexConfig(),  # noqa: B008
        kv: ModuleType = optimized,
    ) -> None:
        refuse.hex_settings(settings)
        if isinstance(config, AttendingCache):
            held = config.layers[0].keys
            assert held is not None
            count, (_, heads, _, width) = len(config), held.shape
        else:
            count, heads = config.num_hidden_layers, config.num_key_value_heads
            width = getattr(config, "head_dim", None)
            width = width or config.hidden_size // config.num_attention_heads
        if 0 < settings.density < 1 and not settings.near:
            kv.biregular_degrees(settings.block, heads * width, settings.density)
        super().__init__([HexLayer(settings, kv) for _ in range(count)])

    def admit(self, real: Tensor, seen: int) -> None:
        """Refuse padding."""
        del seen
        refuse.no_padding(real)

    @classmethod
    def of_prompt(
        cls,
        prompt: Prefilled,
        scored: Sequence[Scored],
        compressor: Callable[..., Any],
        settings: optimized.HexConfig = optimized.HexConfig(),  # noqa: B008
        kv: ModuleType = optimized,
        **how: Any,
    ) -> "HexTransformersCache":
        """Compress a prompt whose heavy hitters another scorer or a refinement names.

        Args:
            prompt: what `prefill` returned, in chunks or not, without padding.
            scored: what a scorer returned for each layer.
            compressor: `compress`, `hubkv_compress` or `graphkv_compress` of `kv`.
            settings: the settings of HEX.
            kv: `reference` or `optimized`.
            how: what else the compressor takes: `refinement`, `keep` or `ratio`.

        Returns:
            The cache; each layer's budget counts its own tokens.

        Raises:
            ValueError: what the compressor refuses, padding, or scores of another number of layers.
        """
        refuse.no_padding(prompt.valid)
        whole = prompt.cache.whole_layers()
        refuse.one_a_layer("scored", scored, len(whole))
        refuse.refined(compressor, how.get("refinement"), scored)
        cache = cls(prompt.cache, settings, kv)
        scope = dict.fromkeys(refuse.scope(compressor, None, None), "layer")
        for layer, source, one in zip(cache.layers, whole, scored, strict=True):
            assert isinstance(layer, HexLayer)
            layer.lazy_initialization(*source.whole)
            layer.held = compressor(*source.whole, one, store=settings, **scope, **how)
            layer.seen = source.seen
        cache.ends = prompt.cache.ends
        return cache
