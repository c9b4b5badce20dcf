"""Attention over whole or compressed caches, as `transformers` calls it."""

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, causal_mask_function

from optimized.models import errors as refuse

NAME = "kvspec"
# What a decoder takes, in its order.
INPUTS = ("input_ids", "attention_mask", "position_ids", "past_key_values")
# Queries for which a mask exists at one time.
BLOCK = 256


@runtime_checkable
class Attendable(Protocol):
    """A layer of a cache that attends itself, since what it holds is no plain tensor."""

    def attend(self, query: Tensor, valid: Tensor | None, scale: float) -> Tensor:
        """Return the output for the queries of the tokens that were just added."""
        ...


@runtime_checkable
class Attentive(Protocol):
    """A cache that is told what each call of a model brings."""

    def expect(self, decoder: nn.Module, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs of the decoder, as they fit what was seen."""
        ...

    def hear(self, layer: int, hidden: Tensor) -> None:
        """Take the hidden states at the input of a layer's attention."""
        ...


def attach(model: PreTrainedModel) -> PreTrainedModel:
    """Let a model attend through this package, after a check that it can.

    Args:
        model: a causal language model of `transformers`: Llama, Mistral without a sliding window,
            Qwen2 or Qwen3.

    Returns:
        The same model. With the growing caches of `transformers` it gives what it gave before; a
        static cache, packed sequences and masks of queries × tokens are refused when they come.

    Raises:
        ValueError: the model is of another architecture, one of its layers slides a window, or an
            adapter puts trained entries before the prompt's.
    """
    refuse.learned_prompt(model)
    refuse.architecture(model.config)
    model.set_attn_implementation(NAME)
    hooks = [(model.get_decoder(), announce), *((one, hand_over) for one in attentions(model))]
    for module, hook in hooks:
        if not hooked(module, hook):
            module.register_forward_pre_hook(hook, with_kwargs=True)
    return model


def attentions(model: PreTrainedModel) -> list[nn.Module]:
    """Return the attention of each layer."""
    layers = model.get_decoder().layers
    assert isinstance(layers, nn.ModuleList)
    return [layer.get_submodule("self_attn") for layer in layers]


def hooked(module: nn.Module, hook: Callable[..., Any]) -> bool:
    """Return whether `attach` prepared a module."""
    return hook in module._forward_pre_hooks.values()


def announce(
    decoder: nn.Module, given: tuple[Any, ...], inputs: dict[str, Any]
) -> tuple[tuple[()], dict[str, Any]] | None:
    """Tell the cache what a call of the decoder brings."""
    inputs = dict(zip(INPUTS, given, strict=False)) | inputs
    cache = inputs.get("past_key_values")
    return ((), cache.expect(decoder, inputs)) if isinstance(cache, Attentive) else None


def hand_over(attention: nn.Module, _: tuple[Any, ...], inputs: dict[str, Any]) -> None:
    """Hand what enters a layer's attention to the cache of this call, and to no other."""
    cache = inputs.get("past_key_values")
    if isinstance(cache, Attentive):
        assert isinstance(attention.layer_idx, int)
        cache.hear(attention.layer_idx, inputs["hidden_states"])


def attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor | Attendable,
    value: Tensor | Attendable,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **variants: Any,
) -> tuple[Tensor, None]:
    """Attend as `transformers` asks: heads before tokens in, tokens before heads out."""
    refuse.architecture(getattr(module, "config", None))
    refuse.unvaried(dropout, variants)
    refuse.flags(attention_mask)
    refuse.scaling(scaling, query.shape[-1])
    scale = query.shape[-1] ** -0.5
    if isinstance(key, Tensor):
        assert isinstance(value, Tensor)
        out = dense_attention(query, key, value, attention_mask, scale)
    else:
        refuse.prepared(hooked(module, hand_over), NAME)
        out = key.attend(query, attention_mask, scale)
    return out.transpose(1, 2).contiguous(), None


def padding_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    config: Any = None,
    **_: Any,
) -> Tensor | None:
    """Return which tokens are no padding; causality needs no mask of queries × tokens."""
    refuse.architecture(config)
    refuse.overlaid(mask_function is not causal_mask_function)
    refuse.static(kv_length, int(q_offset) + q_length)
    refuse.mask(attention_mask, batch_size, kv_length)
    if attention_mask is None or bool(attention_mask.all()):
        return None
    return attention_mask


def dense_attention(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, scale: float
) -> Tensor:
    """Attend causally, the last query at the last key, to the tokens that are no padding."""
    queries, tokens = query.shape[2], key.shape[2]
    first = tokens - queries
    grouped = query.shape[1] != key.shape[1]
    if valid is None and (queries == 1 or first == 0):
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=queries > 1, scale=scale, enable_gqa=grouped
        )
    out = torch.empty_like(query)
    for start in range(0, queries, BLOCK):
        stop = min(queries, start + BLOCK)
        seen = first + stop
        at = torch.arange(first + start, seen, device=query.device)[:, None]
        column = torch.arange(seen, device=query.device)
        visible = (column <= at)[None, None]
        if valid is not None:
            # a padding query sees itself, since a softmax over nothing is NaN
            visible = visible & valid[:, None, None, :seen] | (column == at)
        out[:, :, start:stop] = F.scaled_dot_product_attention(
            query[:, :, start:stop],
            key[:, :, :seen],
            value[:, :, :seen],
            visible,
            scale=scale,
            enable_gqa=grouped,
        )
    return out


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, padding_mask)
