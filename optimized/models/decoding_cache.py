"""A cache for `transformers` that is compressed repeatedly while the model decodes."""

from collections.abc import Collection, Mapping
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

import optimized
from optimized.models.argument_checks import OF_ONE_LAYER, require_known_settings
from optimized.models.attending_layer import AttendingLayer
from optimized.models.attention import Softmax, causal, dense_attention, weighted_attention
from optimized.models.cache import AttendingCache
from optimized.models.eviction_cache import EvictionLayer, exact_or
from optimized.models.layer import count_full_attention_layers
from optimized.models.scorer import NewTokens, Scorer
from optimized.models.scorers import SCORERS
from optimized.models.scorers.fastkvzip import require_gates
from reference.contract.checks import must_be, one_of

SCORES = [name for name, scorer in SCORERS.items() if scorer.decodes]


class DecodingLayer(AttendingLayer):
    """One layer: a `DecodingCache` of the specification."""

    def __init__(
        self,
        config: optimized.DecodingConfig,
        scorer: type[Scorer],
        chosen: Mapping[str, Any],
        gate: Any,
        kv: ModuleType,
    ) -> None:
        super().__init__()
        self.config, self.scorer, self.gate, self.kv = config, scorer, gate, kv
        self.window: int | None = chosen.get("window")
        self.chosen = {name: x for name, x in chosen.items() if name not in ("window", "weights")}
        self.queries: Tensor | None = None
        """The last queries, for a scorer that has a window of them."""

    def attend(self, query: Tensor, valid: Tensor | None, softmax: Softmax) -> Tensor:
        """Add the new tokens, return their output, and compress after every interval."""
        keys, values, hidden = self.take_arriving()
        if self.held is None:
            self.gate = self.beside(self.gate)
            scores = self.scores(keys, hidden, valid)
            if self.window is not None:
                present = keys.new_ones(keys.shape[:-1], dtype=torch.bool)
                present = present if valid is None else present & valid[:, None]
                self.remember(softmax.standard(query))
                scores = self.observed(keys, values, present)
                if scores is None:
                    scores = keys.new_zeros(present.shape, dtype=torch.float32)
            if scores is None:
                scores = self.kv.h2o_mass(softmax.standard(query), keys, valid=valid)
            self.held = self.kv.decoding_start(keys, values, scores, self.config, valid)
            return dense_attention(query, keys, values, valid, softmax)
        scores = self.scores(keys, hidden, None)
        out = torch.empty_like(query)
        start = 0
        while start < query.shape[2]:
            room = self.config.interval - self.held.pending_scores.shape[-1]
            span = slice(start, start + room)
            part = None if scores is None else scores[:, :, span]
            pieces = query[:, :, span], keys[:, :, span], values[:, :, span]
            out[:, :, span] = self.step(*pieces, part, softmax)
            start += room
        return out

    def scores(self, keys: Tensor, hidden: Tensor | None, valid: Tensor | None) -> Tensor | None:
        """Return the scores of new tokens; None where scores are sums of received attention."""
        new = NewTokens(keys, hidden, valid, self.seen - keys.shape[2], self.gate)
        return self.scorer.arriving(self.kv, new)

    def step(
        self, query: Tensor, keys: Tensor, values: Tensor, scores: Tensor | None, softmax: Softmax
    ) -> Tensor:
        """Return the output of at most one interval of new tokens, then append them."""
        assert self.held is not None
        view = self.kv.decoding_read(self.held)
        earlier, new = view.present.shape[-1], keys.shape[2]
        visible = None
        if new > 1 or not isinstance(self.held.stored, optimized.DenseCache):
            own = causal(new, new, None, keys.device).expand(*keys.shape[:2], new, new)
            visible = torch.cat([view.present[:, :, None].expand(-1, -1, new, -1), own], -1)
        every = torch.cat([view.keys, keys], 2), torch.cat([view.values, values], 2)
        out, weights = weighted_attention(query, *every, visible, softmax)
        mass, held = None, self.held
        if self.window is not None:
            received = None
            self.remember(softmax.standard(query))
            if held.pending_scores.shape[-1] + new == self.config.interval:
                present = torch.cat([view.present, view.present.new_ones(keys.shape[:-1])], -1)
                received = self.observed(*every, present)
            scores = keys.new_zeros(keys.shape[:-1], dtype=torch.float32)
            if received is not None:  # in place of all scores so far
                zeros = [torch.zeros_like(x) for x in (held.scores, held.pending_scores)]
                held = held._replace(scores=zeros[0], pending_scores=zeros[1])
                mass, scores = received[..., :earlier], received[..., earlier:]
        elif scores is None:
            if not softmax.plain:  # scorers assume a plain softmax over the products
                weights = weighted_attention(query, *every, visible, Softmax(softmax.scale))[1]
            received = weights.sum((2, 3))
            mass, scores = received[..., :earlier], received[..., earlier:]
        self.held = self.kv.decoding_append(held, keys, values, scores, mass)
        return out

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.queries = None

    def remember(self, query: Tensor) -> None:
        """Store the last queries."""
        assert self.window is not None
        last = query if self.queries is None else torch.cat([self.queries, query], 2)
        self.queries = last[:, :, -self.window :].clone()

    def observed(self, keys: Tensor, values: Tensor, present: Tensor) -> Tensor | None:
        """Return the scores of all entries by the last queries; None where all are kept."""
        assert self.queries is not None
        if keys.shape[2] <= self.config.target:
            return None
        entries = keys, values, present
        return self.scorer.by_last_queries(self.kv, self.queries, entries, **self.chosen)


class DecodingTransformersCache(AttendingCache):
    """A cache that shrinks to a target after the prompt and at every interval of new tokens.

    Args:
        config: the configuration of an attached model.
        settings: target, interval and refinement; the scope is a `"head"` or a `"layer"`, since
            a layer shrinks before the next one has read the same tokens.
        score: `"h2o"`, `"knorm"`, `"streaming_llm"` or `"fastkvzip"`, the scorers that score a
            token on arrival, or by sums over later attention; or `"snapkv"` and
            `"expected_attention"`, which score all entries at each compression by the last
            queries, whose tokens are protected.
        weights: the FastKVzip gate of each layer that sees the whole text, for `"fastkvzip"`.
        kv: `reference` or `optimized`.
        exact: indices of the layers that keep every token.
        options: settings of SnapKV: `window`, `kernel`, `pooling`; or of expected attention:
            `sinks`, `epsilon`, `future` and the `frequencies` of the rotary embedding.

    Raises:
        TypeError: `settings` is not a `DecodingConfig`, or a field has a wrong type.
        ValueError: the score is unknown, gates are missing, the scope is `"model"`, or a setting
            is outside its range.
    """

    def __init__(
        self,
        config: Any,
        settings: optimized.DecodingConfig,
        score: str = "h2o",
        weights: Any = None,
        kv: ModuleType = optimized,
        exact: Collection[int] = (),
        options: Mapping[str, Any] | None = None,
    ) -> None:
        one_of("score", score, SCORES)
        must_be("settings", settings, optimized.DecodingConfig)
        if settings.scope not in OF_ONE_LAYER:
            raise ValueError(
                "settings.scope must be 'head' or 'layer', since a layer shrinks before the next "
                f"one has read the same tokens, got {settings.scope!r}, the default of a "
                "DecodingConfig"
            )
        scorer = SCORERS[score]
        if scorer.negative and settings.refinement is not None:
            raise ValueError(
                f"settings.refinement must be None with score {score!r}, whose scores are "
                f"negative, got {settings.refinement}"
            )
        count = count_full_attention_layers(config)
        if scorer.gated:
            require_gates(weights, count)
        gates = weights if weights is not None else [None] * count
        chosen = dict(options or {})
        looks_back = scorer.looks_back
        takes = {"window", *scorer.takes, *scorer.needs} if looks_back is not None else ()
        require_known_settings(score, chosen, [*takes])
        if missing := {*scorer.needs} - {*chosen}:
            raise ValueError(
                f"options must have {' and '.join(missing)} with score {score!r}, got "
                f"{sorted(chosen)}: `SCORERS[score].of_model(model)` returns them"
            )
        if looks_back is not None:
            window = chosen.get("window", min(looks_back, max(1, settings.target // 2)))
            chosen["window"] = window = min(window, settings.target)
            sinks = min(chosen.get("sinks", settings.sinks), settings.target - window)
            if "sinks" in scorer.takes:
                chosen["sinks"] = sinks
            settings = settings._replace(recent=max(window, settings.recent or 0), sinks=sinks)

        def layer(index: int) -> DecodingLayer:
            return DecodingLayer(settings, scorer, chosen, gates[index], kv)

        super().__init__(config, exact_or(exact, layer))

    def kept(self) -> list[Tensor]:
        """Return which of the tokens seen are stored: a mask over batch, heads and tokens."""
        masks = []
        for layer in self.layers:
            if isinstance(layer, EvictionLayer):
                masks.append(self.real_tokens(layer))
            elif isinstance(layer, DecodingLayer):
                real = layer.beside(self.real_tokens(layer))
                view = layer.kv.decoding_read(layer.held)
                padding = (~real).sum(-1, keepdim=True)
                places = (view.positions + padding).masked_fill(~view.present, 0)
                held = torch.zeros(real.shape, dtype=torch.int32, device=real.device)
                masks.append(held.scatter_add(-1, places, view.present.int()) > 0)
        return masks

    def admit(self, count: int, real: Tensor | None, seen: int) -> None:
        """Refuse padding after the prompt."""
        super().admit(count, real, seen)
        if seen and real is not None and not bool(real.all()):
            raise ValueError("attention_mask must be 1 at every token after the prompt, got a 0")
