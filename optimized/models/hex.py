"""A cache for `transformers` that stores what HEX stores."""

from collections.abc import Callable, Sequence
from inspect import unwrap
from types import ModuleType
from typing import Any

from torch import Tensor

import optimized
from optimized import Scored, kernel_of
from optimized._dispatch import its_gpu, on_gpu
from optimized.models import errors as refuse
from optimized.models.attention import Softmax
from optimized.models.layer import AttendingCache, AttendingLayer, key_heads
from optimized.models.prefill import Prefilled
from optimized.models.quantized import RestoringLayer
from optimized.vector.hex import decode as laid
from reference._validation.contract import contract
from reference.hex.cache import buffer_space

checked = contract(unwrap(optimized.hex_decode))


class HexLayer(RestoringLayer):
    """One layer, compressed in blocks; what comes after the prompt is read by `hex_decode`.

    While it is read token by token it is held in the layout in which it is multiplied. On a GPU
    that is the one of the kernels, and blocks are added in place.
    """

    def __init__(self, config: optimized.HexConfig, kv: ModuleType) -> None:
        super().__init__(kv)
        self.config = config

    @property
    def cache(self) -> Any:
        """Return what is held as the specification stores it, of a padded batch row by row."""
        return stored(self.held)

    def start(self, query: Tensor, keys: Tensor, values: Tensor) -> optimized.HexCache:
        """Compress the first tokens."""
        return self.kv.hex_prefill(query, keys, values, self.config)

    def go_on(self, query: Tensor, keys: Tensor, values: Tensor, softmax: Softmax) -> Tensor:
        """Attend to the codes as they are, where a layer's weights are those of the papers."""
        if not softmax.plain:
            self.held = self.cache
            return super().go_on(query, keys, values, softmax)
        output, self.held = self.decode(softmax.standard(query), keys, values)
        return output

    def decode(self, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Any]:
        """Add tokens and answer their queries, by kernels where there are some."""
        if self.kv is not optimized:
            return self.kv.hex_decode(self.held, query, keys, values)
        held = self.held if isinstance(self.held, optimized.HexCache) else self.held.rest
        checked((held, query, keys, values), {})
        if not on_gpu((query, self.held)) or kernel_of("hex_decode") is None:
            return laid.decoded(self.held, query, keys, values)
        from optimized.kernels.hex._stream import decoded

        with its_gpu((query,)):
            return decoded(self.held, query, keys, values)

    def room(self, new: int) -> int:
        """Return how many tokens come before a block is full."""
        del new
        return buffer_space(self.held)

    def read(self) -> tuple[Tensor, Tensor]:
        """Restore the tokens."""
        return self.kv.hex_read(self.held)

    def append(self, query: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new tokens, and compress a block that is full."""
        self.held = self.kv.hex_append(self.held, query, keys, values)


def stored(held: Any) -> Any:
    """Return caches as the specification stores them."""
    if type(held) is tuple:
        return tuple(map(stored, held))
    return held.cache() if hasattr(held, "cache") else held


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
            held = next(one.keys for one in config.layers if isinstance(one, AttendingLayer))
            assert held is not None
            heads, width = held.shape[1::2]
        else:
            heads, width = key_heads(config)
        if 0 < settings.density < 1 and not settings.near:
            kv.biregular_degrees(settings.block, heads * width, settings.density)
        super().__init__(config, lambda: HexLayer(settings, kv))

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
            prompt: what `prefill` returned, in chunks or not.
            scored: what a scorer returned for each layer.
            compressor: `compress`, `hubkv_compress` or `graphkv_compress` of `kv`.
            settings: the settings of HEX.
            kv: `reference` or `optimized`.
            how: what else the compressor takes: `refinement`, `keep` or `ratio`.

        Returns:
            The cache; each layer's budget counts its own tokens.

        Raises:
            ValueError: what the compressor refuses, or scores of another number of layers.
        """
        whole = prompt.cache.whole_layers()
        refuse.one_a_layer("scored", scored, len(whole))
        refuse.refined(compressor, how.get("refinement"), scored, None)
        cache = cls(prompt.cache, settings, kv)
        scope = dict.fromkeys(refuse.scope(compressor, None, None), "layer")
        layers = (layer for layer in cache.layers if isinstance(layer, HexLayer))
        for layer, source, one in zip(layers, whole, scored, strict=True):
            layer.lazy_initialization(*source.whole)
            every = (*source.whole, *one)
            stored = [
                compressor(*parts[:2], Scored(*parts[2:]), store=settings, **scope, **how)
                if parts[0].shape[2]
                else None
                for parts in rows_of(every, prompt.valid)
            ]
            layer.held = stored[0] if prompt.valid is None else tuple(stored)
            layer.seen = source.seen
        for known in ("valid", "ends", "ahead", "looked", "digest", "reader", "carries"):
            setattr(cache, known, getattr(prompt.cache, known))
        return cache


def rows_of(tensors: Sequence[Tensor], valid: Tensor | None) -> list[tuple[Tensor, ...]]:
    """Return the tokens of each row; all rows together where none is padded."""
    if valid is None:
        return [tuple(tensors)]
    return [
        tuple(one[row : row + 1, :, there] for one in tensors) for row, there in enumerate(valid)
    ]
