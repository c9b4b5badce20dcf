"""A cache for `transformers` that stores the codes of HEX."""

from collections.abc import Callable, Collection, Sequence
from copy import deepcopy
from inspect import unwrap
from types import ModuleType
from typing import Any

from torch import Tensor

import optimized
from optimized import Scored, kernel_of
from optimized._dispatch import gpu_context, on_gpu
from optimized.models import argument_checks as checks
from optimized.models.attending_layer import AttendingLayer
from optimized.models.attention import Softmax
from optimized.models.cache import AttendingCache
from optimized.models.eviction_cache import exact_or
from optimized.models.layer import key_heads_and_width
from optimized.models.prefill import Prefilled
from optimized.models.quantized import QuantizedLayer, may_be_infinite
from optimized.models.systems import System
from optimized.vector.hex import decode_step as laid
from reference.contract.checks import must_be
from reference.contract.enforce import compile_contract
from reference.hex.cache import buffer_space

checked = compile_contract(unwrap(optimized.hex_decode))


class HexLayer(QuantizedLayer):
    """One layer, compressed in blocks; `hex_decode` reads the tokens after the prompt.

    While tokens come one by one, the cache has a layout whose codes attention can multiply. On a
    GPU that is the layout of the kernels, and blocks are added in place.
    """

    def __init__(self, config: optimized.HexConfig, kv: ModuleType) -> None:
        super().__init__(System("hex", store="hex"), "letter", kv)
        self.config = config

    @property
    def cache(self) -> Any:
        """Return the cache in the layout of the specification; row by row for a padded batch."""
        return stored(self.held)

    def start(self, query: Tensor, keys: Tensor, values: Tensor) -> optimized.HexCache:
        """Return the compressed cache of the first tokens."""
        return self.kv.hex_prefill(query, keys, values, self.config)

    def go_on(self, query: Tensor, keys: Tensor, values: Tensor, softmax: Softmax) -> Tensor:
        """Return the attention output over the codes, if the layer has a plain softmax.

        Otherwise restore the tokens first.
        """
        if not softmax.plain:
            self.held = self.cache
            return super().go_on(query, keys, values, softmax)
        output, self.held = self.decode(softmax.standard(query), keys, values)
        return output

    def decode(self, query: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Any]:
        """Add tokens, and return their output and the new cache; use kernels if available."""
        if self.kv is not optimized:
            return self.kv.hex_decode(self.held, query, keys, values)
        cache = self.held if isinstance(self.held, optimized.HexCache) else self.held.rest
        if not on_gpu((query, self.held)) or kernel_of("hex_attention") is None:
            try:
                output, held = laid.decode_in_layout(self.held, query, keys, values)
            except (RuntimeError, ValueError):
                checked((cache, query, keys, values), {})  # says which of them is at fault
                raise
            if may_be_infinite(output, keys):
                checked((cache, query, keys, values), {})
            return output, held
        checked((cache, query, keys, values), {})
        from optimized.kernels.hex._packed_decode_step import decode_packed

        with gpu_context((query,)):
            return decode_packed(self.held, query, keys, values)

    def settle(self) -> None:
        """Leave memory that steps write in place, so that a copy shares none."""
        self.held = settled(self.held)

    def room(self, new: int) -> int:
        """Return how many tokens fit before a block is full."""
        del new
        return buffer_space(self.held)

    def append(self, query: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store new tokens, and compress each full block."""
        self.held = self.kv.hex_append(self.held, query, keys, values)


def stored(cache: Any) -> Any:
    """Return a cache, or each cache of a tuple, in the layout of the specification."""
    if type(cache) is tuple:
        return tuple(map(stored, cache))
    return cache.cache() if hasattr(cache, "cache") else cache


def settled(cache: Any) -> Any:
    """Return a cache, or each cache of a tuple, that no step changes in place."""
    if type(cache) is tuple:
        return tuple(map(settled, cache))
    return cache.settled() if hasattr(cache, "settled") else cache


class HexTransformersCache(AttendingCache):
    """The streaming cache of HEX, for `model.generate(past_key_values=...)`.

    Blocks are packed codes, kept entries and scales; attention restores a few heads at a time, or
    on a GPU none. The first call of the model is the prompt; later calls append tokens.

    Args:
        config: the configuration of an attached model, or another cache of its layers.
        settings: the settings of HEX, as `hex_preset` names them.
        kv: `reference` or `optimized`.
        exact: indices of the layers that are not compressed.

    Raises:
        TypeError: `settings` is not a `HexConfig`, or a field has a wrong type.
        ValueError: a setting is outside its range, or no mask of a block has its density.
    """

    def __init__(
        self,
        config: Any,
        settings: optimized.HexConfig = optimized.HexConfig(),  # noqa: B008
        kv: ModuleType = optimized,
        exact: Collection[int] = (),
    ) -> None:
        must_be("settings", settings, optimized.HexConfig)
        super().__init__(config, exact_or(exact, lambda _: HexLayer(settings, kv)))
        if isinstance(config, AttendingCache):
            first = next(layer for layer in config.layers if isinstance(layer, AttendingLayer))
            heads, width = first.whole[0].shape[1::2]
        else:
            heads, width = key_heads_and_width(config)
        if 0 < settings.density < 1 and not settings.near:
            kv.biregular_degrees(settings.block, heads * width, settings.density)

    @classmethod
    def of_prompt(
        cls,
        prompt: Prefilled,
        scored: Sequence[Scored],
        compressor: Callable[..., Any],
        settings: optimized.HexConfig = optimized.HexConfig(),  # noqa: B008
        kv: ModuleType = optimized,
        exact: Collection[int] = (),
        **how: Any,
    ) -> "HexTransformersCache":
        """Return the cache of a prompt whose heavy hitters a scorer or a refinement selects.

        Args:
            prompt: the result of `prefill`, in chunks or not.
            scored: the scores of each layer.
            compressor: `compress`, `hubkv_compress` or `graphkv_compress` of `kv`.
            settings: the settings of HEX.
            kv: `reference` or `optimized`.
            exact: indices of the layers that are not compressed.
            how: other arguments of the compressor: `refinement`, `keep` or `ratio`.

        Returns:
            The cache; each layer's budget counts its own tokens.

        Raises:
            ValueError: the compressor raises it, or scores have another number of layers.
        """
        whole = prompt.cache.whole_layers()
        checks.require_one_per_layer("scored", scored, len(whole))
        checks.require_refinable_scores(compressor, how.get("refinement"), scored, None)
        cache = cls(prompt.cache, settings, kv, exact)
        scope = dict.fromkeys(checks.scope_argument(compressor, None, None), "layer")
        layers = [layer for layer in cache.layers if isinstance(layer, AttendingLayer)]
        for layer, source, scores in zip(layers, whole, scored, strict=True):
            if not isinstance(layer, HexLayer):
                vars(layer).update(vars(deepcopy(source)))
                continue
            layer.lazy_initialization(*source.whole)
            every = (*source.whole, *scores)
            stored = [
                compressor(*parts[:2], Scored(*parts[2:]), store=settings, **scope, **how)
                if parts[0].shape[2]
                else None
                for parts in rows_of(every, prompt.valid)
            ]
            layer.held = stored[0] if prompt.valid is None else tuple(stored)
            layer.seen = source.seen
        cache.copy_record(prompt.cache)
        return cache


def rows_of(tensors: Sequence[Tensor], valid: Tensor | None) -> list[tuple[Tensor, ...]]:
    """Return the real tokens of each batch row; all rows together where none is padded."""
    if valid is None:
        return [tuple(tensors)]
    flags = enumerate(valid.to(tensors[0].device))
    return [tuple(x[row : row + 1, :, real] for x in tensors) for row, real in flags]
