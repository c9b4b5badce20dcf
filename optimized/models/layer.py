"""The layers of a model's cache: which kinds there are, and which of them is compressed."""

from collections.abc import Callable
from copy import deepcopy
from itertools import count
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

from optimized.models.attending_layer import AttendingLayer, LastingLayer

WHOLE = ("DynamicLayer", "LinearAttentionAndFullAttentionLayer")
"""The layers of `transformers` that cache the keys and values of the whole text."""
KINDS = (
    *WHOLE,
    "DynamicSlidingWindowLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
    "DummyLayer",
)


class WindowLayer(LastingLayer, DynamicSlidingWindowLayer):
    """A sliding-window layer of `transformers`, uncompressed.

    It holds one token more than the next query sees, so that the last one can be removed.
    """

    def __init__(self, sliding_window: int) -> None:
        super().__init__(sliding_window)
        self.held: list[Tensor] = []

    def hold(self, tensors: list[Tensor]) -> None:
        """Store keys and values of a window and one token more."""
        self.held = tensors
        self.keys, self.values = (x[:, :, -self.sliding_window + 1 :] for x in tensors)

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> Any:
        """Append new tokens; return the keys and values held before, followed by the new ones."""
        whole, size = super().update(key_states, value_states), self.sliding_window
        # A view would keep the whole longer tensor in memory.
        self.hold([x if x.shape[2] <= size else x[:, :, -size:].clone() for x in whole])
        return whole

    def take_back(self) -> None:
        """Remove the last token."""
        self.keys, self.values = (x[:, :, :-1] for x in self.held)
        self.cumulative_length -= 1

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        self.hold([x[rows] for x in self.held])

    def reset(self) -> None:
        """Forget every token."""
        super().reset()
        self.held = []


class StateLayer(LastingLayer, LinearAttentionLayer):
    """A layer of `transformers` with a recurrent state: linear attention or a convolution.

    A model changes states in place. This layer gives it copies, so that an earlier state can be
    restored.
    """

    before: dict[str, Any] | None = None
    """Its attributes before the last call, if that call brought one token, which can then be
    removed."""

    def remember(self, count: int) -> None:
        """Store the state before a call of `count` tokens, if it can be restored."""
        vars(self).pop("before", None)
        self.before = dict(vars(self)) if count == 1 else None

    def take_back(self) -> None:
        """Remove the last token."""
        vars(self).update(self.before or {})

    def renew(self, kind: str, index: int) -> Tensor | None:
        """Replace a state by a copy, and return the copy."""
        for name, value in list(vars(self).items()):
            if isinstance(value, dict):
                vars(self)[name] = dict(value)
        states = vars(self)[kind]
        if states[index] is not None:
            states[index] = states[index].clone()
        return states[index]

    def update_conv_state(
        self, conv_states: Tensor, state_idx: int = 0, *size: Any, **options: Any
    ) -> Tensor:
        """Update a copy of the convolution state."""
        self.renew("conv_states", state_idx)
        return super().update_conv_state(conv_states, state_idx, *size, **options)

    def update_recurrent_state(
        self, recurrent_states: Tensor, state_idx: int = 0, **options: Any
    ) -> Tensor:
        """Update a copy of the linear-attention state."""
        self.renew("recurrent_states", state_idx)
        return super().update_recurrent_state(recurrent_states, state_idx, **options)

    def take_rows(self, rows: Tensor) -> None:
        """Replace the batch rows by those with the given indices."""
        vars(self).update(rows_of_states(vars(self), rows))
        self.before = self.before and self.before | rows_of_states(self.before, rows)

    def reset(self) -> None:
        """Forget every token."""
        count = self.number_of_states
        vars(self).clear()
        type(self).__init__(self, count)


def rows_of_states(attributes: dict[str, Any], rows: Tensor) -> dict[str, Any]:
    """Return the given batch rows of a layer's convolution and recurrent states."""
    kinds = {kind: attributes[kind] for kind in ("conv_states", "recurrent_states")}
    return {
        kind: {n: None if x is None else x[rows] for n, x in states.items()}
        for kind, states in kinds.items()
    }


def build_layers(
    config: Any, whole: Callable[[int], AttendingLayer]
) -> tuple[list[Any], dict[int, StateLayer]]:
    """Return the layers of a new cache, and those with a recurrent state by their index.

    Args:
        config: the configuration of a model.
        whole: creates each layer that sees the whole text, from its index among these.
    """
    layers: list[Any] = []
    states: dict[int, StateLayer] = {}
    counted = count()
    for index, layer in enumerate(own_layers(config)):
        if isinstance(layer, LinearAttentionLayer):
            states[index] = StateLayer(layer.number_of_states)
        if type(layer).__name__ in WHOLE:
            layers.append(whole(next(counted)))
        elif isinstance(layer, DynamicSlidingWindowLayer):
            layers.append(WindowLayer(layer.sliding_window))
        else:  # a recurrent state alone, or no cache at all
            layers.append(states.get(index, layer))
    return layers, states


def require_own_keys(config: Any) -> None:
    """Refuse a model whose layers or heads attend to keys of others, which codes do not store."""
    reject_latent_attention(is_latent(config))
    if reuses_keys(config):
        raise ValueError(
            "model must have keys in every layer for a system that stores codes, or that "
            f"compresses again, got {config.model_type!r}, some of whose layers attend to the keys "
            "of another: use a system that evicts once"
        )


def layers_are_independent(config: Any) -> bool:
    """Return whether a prompt is read in one call, in which no layer needs another one's keys."""
    kinds = {type(layer).__name__ for layer in own_layers(config)}
    alone = kinds <= {"DynamicLayer", "DynamicSlidingWindowLayer"}
    return alone and not reuses_keys(config) and not is_latent(config)


def reuses_keys(config: Any) -> bool:
    """Return whether some layers of a model attend to the keys of another."""
    sharing = getattr(config.get_text_config(decoder=True), "kv_sharing_modes", None) or ()
    return "reuse" in sharing


def own_layers(config: Any) -> list[Any]:
    """Return the cache layers that `transformers` creates for a model.

    Raises:
        ValueError: a layer is of an unknown kind, or none sees the whole text.
    """
    named = repr(config.model_type)
    try:
        layers: list[Any] = DynamicCache(config=config).layers
    except AttributeError as error:
        raise ValueError(
            "model must say in its configuration what each of its layers caches, got "
            f"{named}: {error}"
        ) from error
    kinds = {type(layer).__name__ for layer in layers}
    if others := sorted(kinds - {*KINDS}):
        raise ValueError(
            "model must have layers that cache keys and values, of all tokens or a window, or a "
            f"state, got {named} with {', '.join(others)}"
        )
    if any("Linear" in kind for kind in kinds) and not hasattr(Cache, "get_conv_state"):
        raise ValueError(
            "model must have only attention layers with this version of transformers, got "
            f"{named} with recurrent states: update transformers to 5.23 or later"
        )
    if not kinds & {*WHOLE}:
        windows = [layer.sliding_window for layer in layers if hasattr(layer, "sliding_window")]
        window = f"a window of {min(windows)} tokens" if windows else "a state and no keys"
        lifts = "; sliding_window=None in its configuration lifts the window"
        raise ValueError(
            f"model must have a layer that sees the whole text, got {named} with {window} in every "
            f"layer, which keeps no other tokens{lifts if can_lift_window(config) else ''}"
        )
    return layers


def can_lift_window(config: Any) -> bool:
    """Return whether `sliding_window=None` is allowed and makes layers see the whole text."""
    free = deepcopy(config)
    try:
        free.get_text_config(decoder=True).sliding_window = None
        layers = DynamicCache(config=free).layers
    except (TypeError, ValueError, StrictDataclassError):
        return False
    return any(type(layer).__name__ in WHOLE for layer in layers)


def reject_latent_attention(rows: bool) -> None:
    """Refuse multi-head latent attention in a cache that stores keys and values of heads."""
    if rows:
        raise ValueError(
            "model must cache keys and values of its heads to store them in codes or to evict "
            "while decoding, got multi-head latent attention, which caches one row for all heads: "
            "a scorer with or without a refinement is admissible, without `interval` and `>`"
        )


def count_full_attention_layers(config: Any) -> int:
    """Return how many layers of a model see the whole text."""
    return sum(type(layer).__name__ in WHOLE for layer in own_layers(config))


def is_latent(config: Any) -> bool:
    """Return whether a model caches one latent row per token, shared by all heads."""
    return getattr(config.get_text_config(decoder=True), "kv_lora_rank", None) is not None


def key_heads_and_width(config: Any) -> tuple[int, int]:
    """Return the number of key heads of a model, and their width."""
    text = config.get_text_config(decoder=True)
    if is_latent(config):
        return 1, text.kv_lora_rank + text.qk_rope_head_dim
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return heads, width


def whole_widths(config: Any) -> list[int]:
    """Return the widths that key heads have in the layers that see the whole text."""
    text = config.get_text_config(decoder=True)
    if not getattr(text, "is_heterogeneous", False):
        return [key_heads_and_width(config)[1]]
    pairs = zip(own_layers(config), text.per_layer_config, strict=False)
    whole = (of_layer for layer, of_layer in pairs if type(layer).__name__ in WHOLE)
    return sorted({key_heads_and_width(of_layer)[1] for of_layer in whole})
