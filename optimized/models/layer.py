"""The layers of a model's cache: which kinds there are, and which of them is compressed."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from transformers.cache_utils import (
    Cache,
    DynamicCache,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)

from optimized.models.attending_layer import AttendingLayer
from optimized.models.state_layer import StateLayer
from optimized.models.window_layer import WindowLayer

WHOLE = ("DynamicLayer", "LinearAttentionAndFullAttentionLayer")
"""The layers of `transformers` that cache the keys and values of the whole text."""
KINDS = (
    *WHOLE,
    "DynamicSlidingWindowLayer",
    "LinearAttentionLayer",
    "LinearAttentionAndSlidingWindowAttentionLayer",
    "DummyLayer",
)


def build_layers(
    config: Any, whole: Callable[[], AttendingLayer], evicts: bool
) -> tuple[list[Any], dict[int, StateLayer]]:
    """Return the layers of a new cache, and those with a recurrent state by their index.

    Args:
        config: the configuration of a model.
        whole: creates each layer that sees the whole text.
        evicts: whether the cache stores exact entries, so that the layers may share keys or hold
            latent rows.
    """
    layers: list[Any] = []
    states: dict[int, StateLayer] = {}
    for index, layer in enumerate(own_layers(config)):
        if isinstance(layer, LinearAttentionLayer):
            states[index] = StateLayer(layer.number_of_states)
        if type(layer).__name__ in WHOLE:
            layers.append(whole())
        elif isinstance(layer, DynamicSlidingWindowLayer):
            layers.append(WindowLayer(layer.sliding_window))
        else:  # a recurrent state alone, or no cache at all
            layers.append(states.get(index, layer))
    if not evicts:
        reject_shared_keys(config)
        reject_latent_attention(is_latent(config))
    return layers, states


def reject_shared_keys(config: Any) -> None:
    """Refuse a model whose layers attend to the keys of another layer."""
    sharing = getattr(config.get_text_config(decoder=True), "kv_sharing_modes", None) or ()
    if "reuse" in sharing:
        raise ValueError(
            "model must have keys in every layer for a system that stores codes, or that "
            f"compresses again, got {config.model_type!r}, some of whose layers attend to the keys "
            "of another: use a system that evicts once"
        )


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
