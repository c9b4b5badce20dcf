"""HubKV and GraphKV as presses of kvpress, over the scores of any of its presses.

`hubkv_select` and `graphkv_select` choose the kept entries. Where all heads keep equally many
entries, kvpress cuts the others out of its cache. Elsewhere it masks them during attention, which
frees no memory.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import Parameter, Signature, signature
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

import optimized
from optimized import DenseCache, GraphSettings, HubSettings, Scored
from reference.precision import widen

try:
    import kvpress  # pyright: ignore[reportMissingImports]
    from kvpress import utils  # pyright: ignore[reportMissingImports]
    from transformers import QuantizedCache
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
except ImportError as missing:
    raise ImportError("optimized.presses needs kvpress: pip install 'kvspec[kvpress]'") from missing

__all__ = ["HubKVPress", "GraphKVPress"]

ENDS: dict[type, tuple[str | int, str | int]] = {
    kvpress.CapPress: ("n_sink", 0),
    kvpress.CompactorPress: ("sink_size_start", "sink_size_end"),
    kvpress.CURPress: ("num_sinks", 0),
    kvpress.ExpectedAttentionPress: ("n_sink", 0),
    kvpress.KeyDiffPress: (0, 0),
    kvpress.KnormPress: (0, 0),
    kvpress.KVzapPress: (0, 0),
    kvpress.KVzipPress: ("n_sink", 0),
    kvpress.LeverageScorePress: (0, 0),
    kvpress.NonCausalAttnPress: (0, 0),
    kvpress.ObservedAttentionPress: (0, 0),
    kvpress.QFilterPress: (0, 0),
    kvpress.RandomPress: (0, 0),
    kvpress.SnapKVPress: (0, "window_size"),
    kvpress.StreamingLLMPress: ("n_sink", 0),
    kvpress.TOVAPress: (0, 1),
}
"""The number of tokens that a press always keeps at the start and at the end of a prompt.

kvpress gives them a score above all others; that score is not used here.
"""

AFTERWARDS = (kvpress.KVzipPress, kvpress.FastKVzipPress)
"""Presses that score all layers after the prompt has been read."""

FOUND = {*signature(optimized.select).parameters, "adaptive"} - {"scope"}
"""Parameters that a press sets itself; for GraphKV, `length` replaces `adaptive`."""


class Layer(NamedTuple):
    """The keys and values of a prompt in one layer, their scores, and the queries if needed."""

    module: Any
    keys: Tensor
    values: Tensor
    scored: Scored
    queries: Tensor | None = None


class SelectingPress(kvpress.BasePress):
    """Base class: a press of kvpress that scores, and a selection of this package."""

    select: Callable[..., Tensor]
    record: type
    __signature__: Signature

    def __init_subclass__(cls) -> None:
        every = (signature(source).parameters.values() for source in (cls.select, cls.record))
        settings = [setting for setting in chain(*every) if setting.name not in FOUND]
        cls.__signature__ = Signature(
            [
                Parameter("press", Parameter.POSITIONAL_OR_KEYWORD),
                *(setting.replace(kind=Parameter.KEYWORD_ONLY) for setting in settings),
                Parameter("ends", Parameter.KEYWORD_ONLY, default=None),
            ]
        )

    def __init__(self, *given: Any, **settings: Any) -> None:
        bound = self.__signature__.bind(*given, **settings)
        bound.apply_defaults()
        self.arguments = bound.arguments
        settings = dict(self.arguments)
        self.press, ends = settings.pop("press"), settings.pop("ends")
        fields = signature(self.record).parameters
        self.refinement = self.record(
            **{name: settings.pop(name) for name in fields if name in settings}
        )
        self.settings, self.scope = settings, settings.get("scope", "head")
        self.needs_queries = "q" in getattr(self.refinement, "kind", "")
        check_press(self.press, settings.get("scope"), self.needs_queries)
        self.given_ends = ends
        self.layers: list[Layer] = []
        self.cache: Any = None
        self.entered = False
        self.ends(0)
        x = torch.zeros(1, 1, 1, 1, 1)  # so that the selection checks the settings
        self.marked(Layer(None, x, x, Scored(x[0], x[0] > 0), x), ratio=0)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.arguments.items())
        return f"{type(self).__name__}({shown})"

    @property
    def compression_ratio(self) -> float:
        """The removed share of the entries, which the inner press holds."""
        return self.press.compression_ratio

    @compression_ratio.setter
    def compression_ratio(self, value: float) -> None:
        self.press.compression_ratio = value

    def post_init_from_model(self, model: Any) -> None:
        """Pass the model to the inner press."""
        self.press.post_init_from_model(model)

    def compress(
        self,
        module: Any,
        hidden_states: Tensor,
        keys: Tensor,
        values: Tensor,
        attentions: Tensor | None,
        kwargs: dict[str, Any],
    ) -> tuple[Tensor, Tensor]:
        """Return the keys and values that a layer keeps; if layers compete, all of them for now."""
        if not self.entered and (self.scope == "model" or isinstance(self.press, AFTERWARDS)):
            raise ValueError(
                "press must not be inside another press if it selects after all layers, got it in "
                "one"
            )
        if not self.can_remove(keys.shape[2], kwargs):
            return keys, values
        scores = self.press.score(module, hidden_states, keys, values, attentions, kwargs)
        queries = None
        if self.needs_queries:
            raw = utils.get_prerope_query_states(module, hidden_states)
            queries, _ = apply_rotary_pos_emb(raw, raw, *kwargs["position_embeddings"])
        layer = Layer(module, keys, values, self.scored(scores), queries)
        if self.scope != "model":
            return self.stored(layer, self.marked(layer))
        self.layers.append(layer)
        return keys, values

    def can_remove(self, tokens: int, kwargs: dict[str, Any]) -> bool:
        """Whether any entry can be removed; refuse a prompt with masked tokens."""
        if self.compression_ratio == 0:
            return False
        check_visible(kwargs.get("attention_mask"))
        return sum(self.ends(tokens)) < tokens

    def ends(self, tokens: int) -> tuple[int, int]:
        """Return how many tokens are always kept at the start and at the end."""
        return ends_of(self.press, tokens) if self.given_ends is None else self.given_ends

    def scored(self, scores: Tensor) -> Scored:
        """Return scores without the marks of always kept tokens, and those as a mask."""
        tokens = scores.shape[-1]
        first, last = self.ends(tokens)
        position = torch.arange(tokens, device=scores.device)
        first_stage = scores == torch.finfo(scores.dtype).max  # of CriticalKV
        protected = first_stage | (position < first) | (position >= tokens - last)
        raw = widen(scores).masked_fill(protected, 0)
        raw = optimized.shift_scores(raw) if bool((raw < 0).any()) else raw
        return Scored(raw, protected)

    def marked(self, layer: Layer, **budget: Any) -> Tensor:
        """Return the mask of the kept entries of a layer, or of all layers joined."""
        if not budget:
            budget = self.budget(layer)
        if self.needs_queries:
            budget["queries"] = layer.queries
        given = layer.keys, layer.values, layer.scored
        return self.select(*given, refinement=self.refinement, **budget, **self.settings)

    def budget(self, layer: Layer) -> dict[str, Any]:
        """Return the budget of a pool: a count under PyramidKV, else the removed share."""
        if not isinstance(self.press, kvpress.PyramidKVPress):
            return dict(ratio=self.compression_ratio)
        heads, tokens = layer.keys.shape[1:3]
        keep = self.press.get_layer_budget(layer.module, tokens)
        return dict(keep=keep * (heads if self.scope == "layer" else 1))

    def stored(self, layer: Layer, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Return the kept entries, or all entries after masking the others.

        Under PyramidKV entries are masked too: layers then keep different numbers of entries, and
        transformers has one attention mask for all layers.
        """
        if self.scope == "head" and not isinstance(self.press, kvpress.PyramidKVPress):
            left = optimized.evict(layer.keys, layer.values, kept)
            assert isinstance(left, DenseCache)
            return left.keys, left.values
        if layer.module.config._attn_implementation == "eager":
            raise ValueError(
                "model must not attend by 'eager', which kvpress does not mask, where heads or "
                "layers keep different numbers of entries"
            )
        layer.module.masked_key_indices = (~kept).nonzero(as_tuple=True)
        return layer.keys, layer.values

    def settle(self, *_: Any) -> None:
        """Select the entries of all layers, once all of them have been read."""
        layers, self.layers = self.layers, []
        if layers and self.scope == "model":
            parts = zip(*(layer[1:4] for layer in layers), strict=True)
            keys, values, scored = parts
            both = Scored(*map(torch.stack, zip(*scored, strict=True)))
            joined = Layer(layers[0].module, torch.stack(keys), torch.stack(values), both)
            every = list(self.marked(joined))
        else:
            every = [self.marked(layer) for layer in layers]
        for layer, kept in zip(layers, every, strict=True):
            keys, values = self.stored(layer, kept)
            if keys is not layer.keys:
                if isinstance(self.cache, QuantizedCache):  # its entries cannot be replaced
                    raise ValueError(
                        "past_key_values must not be a QuantizedCache where entries are removed "
                        "after the prompt is read; scope 'layer' and 'model' mask them"
                    )
                vars(self.cache.layers[layer.module.layer_idx]).update(keys=keys, values=values)

    @contextmanager
    def __call__(self, model: Any) -> Iterator[None]:
        """Compress prompts read within the context; a press of `AFTERWARDS` does so on exit."""
        decoder = decoder_of(model)
        hooks, self.entered = [], True
        try:
            if isinstance(self.press, AFTERWARDS):
                self.press.compress_post = self.compress_post
                hooks = [
                    layer.self_attn.register_forward_hook(self.note_cache, with_kwargs=True)
                    for layer in decoder.layers
                ]
                with self.press(model):
                    yield
            else:
                hooks = [decoder.register_forward_hook(self.settle)]
                with super().__call__(model):
                    yield
        finally:
            for hook in hooks:
                hook.remove()
            vars(self.press).pop("compress_post", None)
            self.layers, self.cache, self.entered = [], None, False

    def note_cache(self, module: nn.Module, _: Any, kwargs: dict[str, Any], output: Any) -> None:
        """Store the cache that a prompt is read into, and check its mask."""
        del module, output
        self.cache = kwargs["past_key_values"]
        if self.compression_ratio:
            check_visible(kwargs.get("attention_mask"))

    def compress_post(self, model: Any) -> None:
        """Select entries of all layers by the scores of the inner press."""
        for module in (layer.self_attn for layer in decoder_of(model).layers):
            scores = self.press.score_val[module.layer_idx]
            if scores is not None and self.can_remove(scores.shape[-1], {}):
                keys, values = utils.extract_keys_and_values(self.cache, module.layer_idx)
                self.layers.append(Layer(module, keys, values, self.scored(scores)))
        self.settle()


class HubKVPress(SelectingPress):
    """HubKV over the scores of a press; settings and their defaults are those of `hubkv_select`.

    Args:
        press: a ScorerPress, a KVzipPress or a FastKVzipPress; its ratio is the removed share.
        settings: `scope`, `sinks` and `recent` of `hubkv_select`, and the fields of `HubSettings`.
        ends: how many tokens the press always keeps at the start and at the end of a prompt; they
            are protected. By default those of the press, if it is one of kvpress' own.

    Raises:
        TypeError: no such press, or no such setting.
        ValueError: `hubkv_select` raises it; the prompt has padding; `ends` is missing for a press
            that is not one of kvpress' own.
    """

    select = staticmethod(optimized.hubkv_select)
    record = HubSettings


class GraphKVPress(SelectingPress):
    """GraphKV over the scores of a press; settings and defaults are those of `graphkv_select`.

    Args:
        press: a ScorerPress, a KVzipPress or a FastKVzipPress; its ratio is the removed share.
        settings: the fields of `GraphSettings`, where `count` has no default, and `length` of
            `graphkv_select`. A prompt below 1000 tokens has no neighbours; one of at least
            1000 · `count` tokens has `count`.
        ends: how many tokens the press always keeps at the start and at the end of a prompt; they
            are protected. By default those of the press, if it is one of kvpress' own.

    Raises:
        TypeError: no such press, or no such setting.
        ValueError: `graphkv_select` raises it; a prompt has padding; `ends` is missing for a press
            that is not one of kvpress' own.
    """

    select = staticmethod(optimized.graphkv_select)
    record = GraphSettings


def decoder_of(model: Any) -> Any:
    """Return the decoder that holds the layers, found as kvpress finds it."""
    return getattr(model.model, "language_model", model.model)


def ends_of(press: Any, tokens: int) -> tuple[int, int]:
    """Return how many tokens a press always keeps at both ends; refuse an unknown press."""
    if isinstance(press, kvpress.CriticalKVPress):
        return ends_of(press.press, tokens)
    if isinstance(press, kvpress.LagKVPress):
        partitions, left = divmod(tokens - press.n_sink, press.lag_size)
        return press.n_sink, press.lag_size + left if partitions > 1 else 0
    if isinstance(press, kvpress.FastKVzipPress):
        share = max(1, int(tokens * press.window_ratio))
        return press.n_sink, share if tokens < 32000 else press.window_size
    names = next((ENDS[kind] for kind in type(press).__mro__ if kind in ENDS), None)
    if names is None:
        raise ValueError(
            f"ends must say how many tokens a {type(press).__name__} keeps at the start and at the "
            "end of a prompt whatever they score, got None"
        )
    first, last = (getattr(press, x) if isinstance(x, str) else x for x in names)
    return first, last


def check_press(press: Any, scope: str | None, needs_queries: bool) -> None:
    """Refuse a press that does not score, or whose budgets or scores conflict with the settings."""
    kinds = (kvpress.ScorerPress, *AFTERWARDS)
    if not isinstance(press, kinds) or isinstance(press, kvpress.RestoreKVPress):
        raise TypeError(
            "press must be a ScorerPress, or a KVzipPress or FastKVzipPress that evicts alone, got "
            f"{press!r}"
        )
    if scope == "model" and isinstance(press, kvpress.PyramidKVPress):
        raise ValueError(
            "scope must be 'head' or 'layer' over a PyramidKVPress, which shares among layers, got "
            "'model'"
        )
    if scope not in (None, "layer") and getattr(press, "layerwise", False):
        raise ValueError(f"scope must be 'layer' where the press is layerwise, got {scope!r}")
    if needs_queries and isinstance(press, AFTERWARDS):
        raise ValueError(
            f"kind must compare keys or values over a {type(press).__name__}, which has no queries"
        )


def check_visible(mask: Tensor | None) -> None:
    """Refuse a prompt whose last token does not see all tokens: a press scores padding as text."""
    if mask is None:
        return
    last = mask if mask.ndim == 2 else mask[:, :, -1]
    seen = last >= 0 if last.is_floating_point() else last.bool()
    if not bool(seen.all()):
        raise ValueError(
            "attention_mask must hide no token from the last one, since presses score hidden "
            f"tokens as text, got {int((~seen).sum())} hidden, by padding or by a window"
        )
