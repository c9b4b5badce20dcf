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
# Queries for which a mask exists at one time.
BLOCK = 256


@runtime_checkable
class Attendable(Protocol):
    """A layer of a cache that attends itself, since what it holds is no plain tensor."""

    def attend(self, query: Tensor, valid: Tensor | None, scale: float) -> Tensor:
        """Return the output for the queries of the tokens that were just added."""
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
        ValueError: the model is of another architecture, or one of its layers slides a window.
    """
    refuse.architecture(model.config)
    model.set_attn_implementation(NAME)
    return model


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
    del module
    refuse.plain(dropout, variants)
    refuse.flags(attention_mask)
    refuse.scaling(scaling, query.shape[-1])
    scale = query.shape[-1] ** -0.5
    if isinstance(key, Tensor):
        assert isinstance(value, Tensor)
        out = dense_attention(query, key, value, attention_mask, scale)
    else:
        out = key.attend(query, attention_mask, scale)
    return out.transpose(1, 2).contiguous(), None


def padding_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] = causal_mask_function,
    attention_mask: Tensor | None = None,
    **_: Any,
) -> Tensor | None:
    """Return which tokens are no padding; causality needs no mask of queries × tokens."""
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
