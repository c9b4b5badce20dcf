"""Run a prompt through a model, whole or in chunks, and let scorers watch."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from transformers import PreTrainedModel

from optimized.models import errors as refuse
from optimized.models.attention import NAME, announce, attentions, hooked
from optimized.models.eviction import EvictionCache, Observer


class Step(NamedTuple):
    """What one layer did with one chunk of the prompt; queries and hidden states of that chunk."""

    layer: int
    queries: Float[Tensor, "batch query_heads queries width"]
    """After the rotary embedding."""
    keys: Float[Tensor, "batch kv_heads tokens width"]
    """Of all tokens so far, after the rotary embedding."""
    values: Float[Tensor, "batch kv_heads tokens width"]
    valid: Bool[Tensor, "batch tokens"] | None
    """Which tokens so far are no padding; None where none is."""
    hidden: Float[Tensor, "batch queries channels"]
    """Input of the attention, after the norm."""
    attention: nn.Module
    """The layer's attention, with its projections."""
    cache: EvictionCache
    """What the prompt is read into."""


class Prefilled(NamedTuple):
    """A prompt that was read."""

    cache: EvictionCache
    valid: Bool[Tensor, "batch tokens"] | None
    """Which tokens are no padding; None where none is."""
    logits: Float[Tensor, "batch vocabulary"]
    """Of the last token."""
    input_ids: Int[Tensor, "batch tokens"]


def prefill(
    model: PreTrainedModel,
    input_ids: Int[Tensor, "batch tokens"],
    attention_mask: Tensor | None = None,
    *,
    chunk: int | None = None,
    watch: Sequence[Callable[[Step], None]] = (),
) -> Prefilled:
    """Read a prompt, in chunks if asked, and show every layer's part to those who watch.

    Nothing of the size queries × tokens is made. A watcher sees each layer once a chunk, in
    order; what it keeps is its own affair.

    Args:
        model: a model that `attach` prepared.
        input_ids: the prompts, padded on the left.
        attention_mask: 1 at tokens, 0 at padding.
        chunk: how many tokens to read at a time, by default all.
        watch: functions that are called with each `Step`.

    Returns:
        The whole cache, ready for `EvictionCache.evict`, the mask and the logits of the last token.

    Raises:
        TypeError: `chunk` is not an integer, or `watch` no list of functions.
        ValueError: the model is not attached, the prompt is empty, `chunk` is below 1, padding is
            not on the left, or the rotary embedding changes with length between two chunks.
    """
    refuse.attached(model.config._attn_implementation, NAME)
    refuse.prepared(hooked(model.get_decoder(), announce), NAME)
    refuse.watchers(watch)
    refuse.token_ids(input_ids, attention_mask)
    tokens = input_ids.shape[1]
    refuse.chunk(chunk)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    cache = EvictionCache(model.config)
    cache.open = True
    logits = torch.empty(0)
    with torch.no_grad(), watched(model, cache, watch):
        for start in range(0, tokens, chunk or tokens):
            stop = min(tokens, start + (chunk or tokens))
            logits = model(
                input_ids=input_ids[:, start:stop],
                attention_mask=mask[:, :stop],
                position_ids=positions[:, start:stop],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
            ).logits[:, -1]
    valid = mask.to(torch.bool)
    return Prefilled(cache, None if bool(valid.all()) else valid, logits, input_ids)


@contextmanager
def watched(
    model: PreTrainedModel, cache: EvictionCache, watch: Sequence[Callable[[Step], None]]
) -> Iterator[None]:
    """Show each layer's steps to those who watch, as long as the context lasts."""
    if not watch:
        yield
        return
    for index, (layer, module) in enumerate(zip(cache.evictable(), attentions(model), strict=True)):
        layer.observe = showing(index, module, cache, watch)
    try:
        yield
    finally:
        for layer in cache.evictable():
            layer.observe = None


def showing(
    index: int, module: nn.Module, cache: EvictionCache, watch: Sequence[Callable]
) -> Observer:
    """Return what tells those who watch of one layer."""

    def observe(
        queries: Tensor, keys: Tensor, values: Tensor, valid: Tensor | None, hidden: Tensor | None
    ) -> None:
        assert hidden is not None
        step = Step(index, queries, keys, values, valid, hidden, module, cache)
        for watcher in watch:
            watcher(step)

    return observe


def unrotated(step: Step) -> Float[Tensor, "batch query_heads queries width"]:
    """Return the queries of a step before the rotary embedding, after a norm where there is one."""
    heads = (*step.hidden.shape[:-1], -1, step.queries.shape[-1])
    projection, norm = step.attention.q_proj, getattr(step.attention, "q_norm", None)
    assert isinstance(projection, nn.Module)
    queries = projection(step.hidden).view(heads)
    return (queries if norm is None else norm(queries)).transpose(1, 2)
