"""Self-check: a model must compute the same with this package's attention as with its own.

The check takes seconds. Other threads may run the model meanwhile; their results do not change.
"""

import threading
from contextlib import ExitStack
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

import optimized
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attention import (
    CHECKING,
    attentions,
    decoder_of,
    dense_attention,
    implementation,
    input_device,
    native_attention,
    register_attention,
    softmax_of,
    unrotated_queries,
    unwrap_latent_expansion,
    wrap_latent_expansion,
)
from optimized.models.eviction_cache import EvictionCache, EvictionLayer
from optimized.models.tensor_parallel import count_all_heads, group_of
from reference.precision import widen

CALLS = ((0, 8), (8, 12))
"""Start and end of each call: a prompt, whose second row is padded, and a second turn."""
PADDING = 3
SHARP = 1e-4
"""Largest allowed difference of two results in single precision, relative to the largest entry.
In half precision it is `UNITS` times the epsilon of the dtype."""
UNITS = 16


class ModelTraits(NamedTuple):
    """Properties of a model that passed the self-check."""

    rotates: bool
    """Whether queries are projections rotated as a whole, as expected attention assumes."""
    carries: bool
    """Whether recurrent states, if any, continue from call to call."""
    layers: int
    """How many layers its cache has."""


def run_self_check(model: PreTrainedModel) -> ModelTraits:
    """Return the properties of a model, after a self-check on a short random prompt.

    The check compares every layer that sees the whole text with the layer's own result.

    Raises:
        ValueError: the model computes something else through this package, or does not attend
            through the attention interface of `transformers`.
    """
    named = model.config.model_type
    if getattr(model.config, "is_encoder_decoder", False) or hasattr(
        model.config, "encoder_layers"
    ):
        raise ValueError(
            f"model must be a decoder alone, got {named!r}, an encoder-decoder or part of one"
        )
    decoder = decoder_of(model)
    cache, modules = EvictionCache(decoder.config), attentions(decoder)
    whole = {n for n, layer in enumerate(cache.layers) if isinstance(layer, EvictionLayer)}
    if lost := whole - {module.layer_idx for module in modules}:
        raise ValueError(
            f"model must attend in `self_attn` of each block, got {named!r} with {len(lost)} whose "
            "attention is elsewhere"
        )
    own, run = implementation(decoder), Run(decoder, cache)
    name = register_attention(own)
    with ExitStack() as undo:
        undo.callback(decoder.set_attn_implementation, own)
        decoder.set_attn_implementation(name)
        if model.training:
            undo.callback(model.train)
            model.eval()
        undo.callback(CHECKING.reset, CHECKING.set(compare_attention))
        for module in modules:
            undo.callback(unwrap_latent_expansion, module)
            wrap_latent_expansion(module)
        if (kept := implementation(decoder)) != name:
            raise ValueError(
                "model must attend through the attention interface of transformers, got "
                f"{named!r}, which keeps {kept!r}"
            )
        try:
            # The check runs in the model's own precision, even under the caller's autocast.
            with torch.no_grad(), torch.autocast(input_device(decoder).type, enabled=False):
                carries = not cache.states or run.carries()
                for module in modules:
                    hook = module.register_forward_hook(run.layer, with_kwargs=True)
                    undo.callback(hook.remove)
                for call in CALLS:
                    run.call(*call)
        except (TypeError, AttributeError, RuntimeError, LookupError, ValueError) as error:
            if str(error).startswith("model must"):
                raise
            raise ValueError(
                f"model must run with caches of this package, got {named!r}, which raises "
                f"{type(error).__name__}: {error}"
            ) from error
    if len(run.found) != len(cache.evictable()) * len(CALLS):
        raise ValueError("model must call the attention of every layer once")
    for keys, values in (layer.whole for layer in cache.evictable()):
        count_all_heads(group_of(model), keys.shape[1], decoder.config)
        if keys.shape != values.shape:
            raise ValueError(
                f"model must have values as wide as its keys, got {named!r} with keys of "
                f"{keys.shape[-1]} and values of {values.shape[-1]} channels"
            )
    formula, output, rotation = torch.tensor(run.found).amax(0).tolist()
    for moved, allowed in ((formula, SHARP), (output, run.loose)):
        if not moved <= allowed:
            raise ValueError(
                "model must compute through this package what it computes by itself, got "
                f"{named!r}, whose attention differs by {moved:.2g} of its size on a random "
                f"prompt; {allowed:.2g} is allowed"
            )
    return ModelTraits(rotation <= run.loose, carries, len(cache.layers))


class Run:
    """The run of the check: the model reads with its own cache, each layer again with ours."""

    def __init__(self, decoder: PreTrainedModel, cache: EvictionCache) -> None:
        self.decoder, self.cache = decoder, cache
        draw = torch.Generator().manual_seed(0)
        size = decoder.config.get_text_config(decoder=True).vocab_size
        ids = torch.randint(size, (2, CALLS[-1][1]), generator=draw)
        self.ids = ids.to(input_device(decoder))
        self.mask = torch.ones_like(self.ids)
        self.mask[1, :PADDING] = 0
        self.places = (self.mask.cumsum(-1) - 1).clamp(min=0)
        self.own = DynamicCache(config=decoder.config)
        self.shared: dict[str, Any] = {}
        self.found: list[tuple[float, float, float]] = []
        """Three relative differences of each layer and call, on the same inputs: of our attention
        from the model's own, of the layer's output with a cache of ours from its own, of its
        queries from projections that are rotated as a whole."""
        self.thread = threading.get_ident()
        self.loose = max(SHARP, UNITS * torch.finfo(decoder.dtype).eps)

    def call(self, start: int, stop: int, cache: DynamicCache | None = None) -> Tensor:
        """Read some tokens, and return the last hidden states."""
        self.new = slice(start, stop)
        return self.decoder(
            input_ids=self.ids[:, self.new],
            attention_mask=self.mask[:, :stop],
            position_ids=self.places[:, self.new],
            past_key_values=self.own if cache is None else cache,
            use_cache=True,
        ).last_hidden_state

    def carries(self) -> bool:
        """Return whether the model computes the same in two calls as in one."""
        twice, once = (DynamicCache(config=self.decoder.config) for _ in range(2))
        parts = [self.call(*call, twice) for call in CALLS]
        whole = self.call(0, CALLS[-1][1], once)
        return relative_difference(torch.cat(parts, 1), whole, self.mask.bool()) <= self.loose

    def layer(
        self, module: nn.Module, given: tuple[Any, ...], inputs: dict[str, Any], output: Any
    ) -> None:
        """Run a layer again with our cache, and record the differences: a forward hook.

        Calls in other threads are ignored.
        """
        if threading.get_ident() != self.thread:
            return
        assert isinstance(module.layer_idx, int)
        ours = self.cache.layers[module.layer_idx]
        if not isinstance(ours, EvictionLayer):
            return
        if "past_key_values" not in inputs:
            raise ValueError("model must pass `past_key_values` to its attention by name")
        if isinstance(masks := inputs.get("attention_mask"), dict):
            raise ValueError(
                "model must pass one mask to the attention of a layer, got one whose "
                f"{type(module).__name__} takes {', '.join(map(str, masks))}"
            )
        queries: list[Tensor] = []
        ours.observe = lambda query, *_: queries.append(query)
        flags = self.mask[:, : self.new.stop].bool().to(output[0].device)
        inputs = inputs | dict(past_key_values=self.cache, attention_mask=flags)
        if "shared_kv_states" in inputs:
            inputs["shared_kv_states"] = self.shared
        again = module.forward(*given, **inputs)[0]
        real = flags[:, self.new]
        hidden = given[0] if given else inputs["hidden_states"]
        formula = float(output[1]) if isinstance(output[1], Tensor) else torch.inf
        moved = relative_difference(again, output[0], real)
        turned = self.rotation(module, hidden, queries[0].transpose(1, 2), real)
        self.found.append((formula, moved, turned))

    def rotation(self, module: nn.Module, hidden: Tensor, queries: Tensor, real: Tensor) -> float:
        """Return the relative difference of queries from projections rotated as a whole."""
        frequencies = getattr(getattr(self.decoder, "rotary_emb", None), "inv_freq", None)
        raw, width = unrotated_queries(module, hidden, queries.shape[-1]), queries.shape[-1]
        if frequencies is None or raw is None or 2 * len(frequencies) != width:
            return torch.inf
        places = self.places[:, self.new].to(frequencies.device)
        turn = optimized.mean_rotation(frequencies, places, 1)[:, :, None].to(raw)
        turned = (turn @ raw[..., None])[..., 0]
        return relative_difference(turned, queries, real)


def compare_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    **how: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return the model's eager attention and, in place of weights, how far ours differs."""
    queries, keys, values = (widen(x) for x in (query, key, value))
    seen = None
    if attention_mask is not None:
        # Eager attention exponentiates in single precision. With double-precision lowest numbers
        # in the mask it would be NaN at padding.
        lowest = torch.finfo(torch.float32).min
        attention_mask = attention_mask.to(queries.dtype).clamp(min=lowest)
        biased = (attention_mask > torch.finfo(torch.float16).min) & (attention_mask != 0)
        if bool(biased.any()):
            raise ValueError(
                "model must compute weights from its keys and a mask alone, got one whose "
                f"{type(module).__name__} adds other numbers to the products"
            )
        seen = attention_mask[:, 0, -1] == 0  # the last query sees all real tokens
    eager = native_attention("eager", module)
    own = eager(module, queries, keys, values, attention_mask, **how)[0]
    ours = dense_attention(queries, keys, values, seen, softmax_of(query, **how)).transpose(1, 2)
    real = torch.ones_like(own[..., 0, 0], dtype=torch.bool)
    real = real if seen is None else seen[:, -query.shape[2] :]
    return own.to(query.dtype), torch.tensor(relative_difference(ours, own, real))


def relative_difference(found: Tensor, expected: Tensor, real: Tensor) -> float:
    """Return the largest difference at real tokens, relative to the largest expected entry."""
    if found.shape != expected.shape:
        return torch.inf
    found, expected = widen(found[real]), widen(expected[real])
    largest = expected.abs().max().clamp(min=torch.finfo().tiny)
    return float((found - expected).abs().max() / largest)
