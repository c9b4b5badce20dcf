"""Attention over whole or compressed caches, as `transformers` calls it."""

import sys
from collections.abc import Callable
from contextlib import nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from reference.contract.enforce import trusted
from reference.precision import widen

NAME = "kvspec"
EXPAND = "expand_kv"
"""Name of the method of an attention module that expands latent rows to keys and values."""
# Number of queries in one block, so that no larger mask is allocated.
BLOCK = 256
# Replaces the model's own attention in the thread that runs the self-check. Other threads, which
# may run the same model, keep the model's own attention.
CHECKING: ContextVar[Callable[..., Any] | None] = ContextVar("CHECKING", default=None)


class Softmax(NamedTuple):
    """How a layer turns products of queries and keys into attention weights."""

    scale: float
    """Factor of the products."""
    softcap: float | None = None
    """Upper bound of the logits, where the model has one."""
    sinks: Tensor | None = None
    """One extra logit for each query head, without a value, where the model has them."""

    @property
    def plain(self) -> bool:
        """Whether the weights are a plain softmax over the scaled products."""
        return self.softcap is None and self.sinks is None

    def standard(self, query: Tensor) -> Tensor:
        """Return queries rescaled so that the usual scale, 1 / sqrt(width), gives these logits."""
        factor = self.scale * query.shape[-1] ** 0.5
        return query if abs(factor - 1) < 1e-6 else query * factor


class UnsupportedMask:
    """A marker for an attention mask that our layers cannot apply.

    It is not an error by itself, since some models create masks that they never use.
    """


class MarkedMaskOffset(int):
    """The offset of a mask; its type marks the mask as one for a layer of ours."""


def register_attention(own: str) -> str:
    """Register attention and mask functions, and return their name.

    They use our attention over our caches, and the model's own over every other cache.
    """
    from transformers.masking_utils import AttentionMaskInterface
    from transformers.modeling_utils import AttentionInterface

    name = f"{NAME}-{own.replace('/', '-')}"
    AttentionInterface.register(name, partial(attend, own))
    AttentionMaskInterface.register(name, partial(mask, own))
    return name


def implementation(decoder: Any) -> str:
    """Return the name of the attention implementation of a decoder."""
    return str(decoder.config._attn_implementation)


def input_device(model: Any) -> torch.device:
    """Return the device on which a model expects its ids.

    It is the hook's execution device where `accelerate` offloads the weights.
    """
    embedding = model.get_input_embeddings()
    for module in (embedding, model):
        device = getattr(getattr(module, "_hf_hook", None), "execution_device", None)
        if device is not None:
            return torch.device(device)
    return next(embedding.parameters()).device


def decoder_of(model: Any) -> Any:
    """Return the decoder of a language model, which holds the attention layers."""
    decoder = model.get_decoder()  # some models return themselves, or the model with its head
    return model.model if decoder is model or not hasattr(decoder, "config") else decoder


def attentions(decoder: nn.Module) -> list[nn.Module]:
    """Return the attention module of each layer.

    Raises:
        ValueError: modules have other names than Llama's, or latent rows are not cached.
    """
    layers = [*getattr(decoder, "layers", ())]
    candidates: list[Any] = [getattr(layer, "self_attn", None) for layer in layers]
    found = [x for x in candidates if isinstance(getattr(x, "layer_idx", None), int)]
    named = getattr(decoder.config, "model_type", None)
    if not found:
        raise ValueError(
            "model must be a decoder with blocks in `layers` that attend in `self_attn`, as "
            f"Llama's are named, got {named!r} with {len(layers)} `layers`"
        )
    if any(hasattr(x, "kv_a_proj_with_mqa") and not hasattr(x, EXPAND) for x in found):
        raise ValueError(
            "model must cache the latent rows of its multi-head latent attention, got "
            f"{named!r} of a version of transformers that does not: 5.23 or later does"
        )
    return found


def unrotated_queries(attention: nn.Module, hidden: Tensor, width: int) -> Tensor | None:
    """Return queries before the rotary embedding, of shape (batch, tokens, heads, width).

    Returns None where the module does not project its queries separately.
    """
    projection, norm = getattr(attention, "q_proj", None), getattr(attention, "q_norm", None)
    if projection is None or projection.out_features % width:
        return None
    queries = projection(hidden).view(*hidden.shape[:-1], -1, width)
    weight = getattr(norm, "weight", queries[0, 0])
    if weight.shape not in (queries.shape[-1:], queries.shape[-2:]):
        return None
    queries = queries if norm is None else norm(queries)
    scale = getattr(attention, "scaling", None) or width**-0.5
    return Softmax(scale).standard(queries)


def native_attention(own: str, module: nn.Module) -> Callable[..., Any]:
    """Return the model's attention function of this name; `eager` is in its module's file."""
    if own != "eager":
        from transformers.modeling_utils import AttentionInterface

        return AttentionInterface()[own]
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if eager is None:
        raise ValueError(
            "model must have an `eager_attention_forward` in the file of its attention, got none"
        )
    return eager


def expand_or_store(own: Callable[..., Any], latent: Any, rotated: Any) -> tuple[Any, Any]:
    """Expand latent rows to keys and values; where they are a layer of ours, store `own` in it.

    The layer expands only the rows that it keeps.
    """
    if isinstance(latent, Tensor):
        return own(latent, rotated)
    latent.expand = own
    return latent, rotated


def wrap_latent_expansion(attention: nn.Module) -> None:
    """Make an attention module accept a layer of ours in place of latent rows."""
    if hasattr(attention, EXPAND):
        vars(attention)[EXPAND] = partial(expand_or_store, getattr(attention, EXPAND))


def unwrap_latent_expansion(attention: nn.Module) -> None:
    """Undo `wrap_latent_expansion`."""
    vars(attention).pop(EXPAND, None)


def pass_hidden(
    attention: nn.Module, given: tuple[Any, ...], inputs: dict[str, Any] | None = None
) -> None:
    """Pass the input of a layer's attention to the cache of this call: a forward pre-hook.

    `inputs` is None in a call that runs while `attach` registers the hook; such a call has no
    cache of ours.
    """
    store = getattr((inputs or {}).get("past_key_values"), "store_hidden", None)
    if store is not None:  # an `AttendingCache`
        assert inputs is not None
        store(attention.layer_idx, given[0] if given else inputs["hidden_states"])


def attend(
    own: str,
    module: nn.Module,
    query: Tensor,
    key: Any,
    value: Any,
    attention_mask: Tensor | None,
    **options: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return the attention output in the layout of `transformers`.

    Inputs have heads before tokens; the output has tokens before heads. In place of keys and values
    comes the layer of a cache of ours, which holds the new tokens.
    """
    if isinstance(key, Tensor):
        native = CHECKING.get() or native_attention(own, module)
        return native(module, query, key, value, attention_mask, **options)
    if not CHECKING.get() and pass_hidden not in module._forward_pre_hooks.values():
        raise ValueError("model must be prepared by `attach(model)`, got only the name of it")
    if dropout := options.get("dropout"):
        raise ValueError(f"dropout must be 0, got {dropout}: call `model.eval()`")
    for name in ("sliding_window", "position_bias", "cache"):
        if options.get(name) is not None:
            raise ValueError(f"{name} must be None, got {type(options[name]).__name__}")
    if options.get("is_causal") is False:
        raise ValueError("is_causal must be True, got False")
    if isinstance(attention_mask, UnsupportedMask):
        raise ValueError(
            "position_ids must continue in every row, got some that start again: sequences that "
            "are packed into one row are not supported; batch them with an attention_mask"
        )
    if attention_mask is not None and attention_mask.shape[1:3] == (1, 1):
        attention_mask = attention_mask[:, 0, 0]
    require_batch_token_mask(attention_mask)
    with trusted() if key.steady else nullcontext():
        out = key.attend(query, attention_mask, softmax_of(query, **options))
    return out.transpose(1, 2).contiguous(), None


def softmax_of(
    query: Tensor,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_: Any,
) -> Softmax:
    """Return the softmax settings that `transformers` passes to an attention function."""
    return Softmax(query.shape[-1] ** -0.5 if scaling is None else scaling, softcap, s_aux)


def mask(
    own: str,
    *,
    batch_size: int,
    kv_length: int,
    kv_offset: int | Tensor = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    **options: Any,
) -> Tensor | UnsupportedMask | None:
    """Return which tokens are not padding; our layers are causal without a larger mask.

    For every other layer, return the mask of the model's own attention.
    """
    from transformers.masking_utils import AttentionMaskInterface, causal_mask_function

    mask_function = causal_mask_function if mask_function is None else mask_function
    if not isinstance(kv_offset, MarkedMaskOffset):
        masks, own = AttentionMaskInterface(), "eager" if CHECKING.get() else own
        if own not in masks:
            return None
        return masks[own](
            batch_size=batch_size,
            kv_length=kv_length,
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            **options,
        )
    if mask_function is not causal_mask_function:
        return UnsupportedMask()
    repeats = attention_mask is not None and 2 * attention_mask.shape[1] == kv_length
    if not repeats:  # a call that repeats the seen tokens has a longer mask, which the cache cuts
        require_mask_of_all_tokens(attention_mask, batch_size, kv_length)
    if attention_mask is None:
        return None
    return attention_mask[:, None, None]  # some models slice the query axis


def require_mask_of_all_tokens(valid: Any, batch: int, tokens: int) -> None:
    """Refuse an attention mask without exactly one flag for each token so far."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.shape != (batch, tokens)):
        raise ValueError(
            "attention_mask must have a flag for every token seen so far and every new one, shape "
            f"{(batch, tokens)}, got {shape_or_type(valid)}; `generate` takes all tokens, those in "
            "the cache first"
        )


def require_batch_token_mask(valid: Any) -> None:
    """Refuse an attention mask that is not of shape (batch, tokens)."""
    if valid is not None and (not isinstance(valid, Tensor) or valid.ndim != 2):
        raise ValueError(
            f"attention_mask must be of shape (batch, tokens), got {shape_or_type(valid)}: a mask "
            "of queries × tokens, as models of text and images make it, is not supported"
        )


def shape_or_type(given: Any) -> Any:
    """Return the shape of a tensor, or the type of any other object."""
    return tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__


def dense_attention(
    query: Tensor, key: Tensor, value: Tensor, valid: Tensor | None, softmax: Softmax
) -> Tensor:
    """Return causal attention over the tokens that are not padding.

    The last query is at the position of the last key.
    """
    queries, tokens = query.shape[2], key.shape[2]
    first = tokens - queries
    if softmax.plain and valid is None and (queries == 1 or first == 0):
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, is_causal=queries > 1, scale=softmax.scale, enable_gqa=grouped
        )
    out = query.new_empty(*query.shape[:-1], value.shape[-1])
    for start in range(0, queries, BLOCK):
        stop = min(queries, start + BLOCK)
        seen = first + stop
        part = query[:, :, start:stop], key[:, :, :seen], value[:, :, :seen]
        visible = causal(stop - start, seen, valid, query.device)
        out[:, :, start:stop] = masked_attention(*part, visible, softmax)
    return out


def causal(queries: int, tokens: int, valid: Tensor | None, device: torch.device) -> Tensor:
    """Return the causal mask of the last queries, of shape (batch, 1, queries, tokens).

    The batch axis is 1 where there is no padding.
    """
    position = torch.arange(tokens - queries, tokens, device=device)[:, None]
    column = torch.arange(tokens, device=device)
    visible = (column <= position)[None, None]
    if valid is None:
        return visible
    # A padding query sees itself, since a softmax over no token is NaN.
    return visible & valid[:, None, None, :tokens] | (column == position)


def masked_attention(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor, softmax: Softmax
) -> Tensor:
    """Return the attention output over the visible tokens."""
    if softmax.plain:
        grouped = query.shape[1] != key.shape[1]
        return F.scaled_dot_product_attention(
            query, key, value, visible, scale=softmax.scale, enable_gqa=grouped
        )
    return weighted_attention(query, key, value, visible, softmax)[0]


def weighted_attention(
    query: Tensor, key: Tensor, value: Tensor, visible: Tensor | None, softmax: Softmax
) -> tuple[Tensor, Tensor]:
    """Return the attention output over the visible tokens, and the weights.

    The weights have an axis of key heads, then one of the query heads of each key head.
    """
    grouped = widen(query).unflatten(1, (key.shape[1], -1))
    group, keys, values = grouped.shape[2:4], widen(key), widen(value)
    # one product a key head: broadcasting would copy keys and values for each query head
    logits = (grouped.flatten(2, 3) @ keys.mT * softmax.scale).unflatten(2, group)
    if softmax.softcap is not None:
        logits = softmax.softcap * torch.tanh(logits / softmax.softcap)
    if visible is not None:
        logits = logits.masked_fill(~visible[:, :, None], -torch.inf)
    if softmax.sinks is not None:
        sinks = softmax.sinks.to(logits.dtype).view(key.shape[1], -1, 1, 1)
        logits = torch.cat([logits, sinks.expand(*logits.shape[:-1], 1)], -1)
    weights = logits.softmax(-1)[..., : key.shape[2]]
    out = (weights.flatten(2, 3) @ values).unflatten(2, group).flatten(1, 2)
    return out.to(query.dtype), weights
