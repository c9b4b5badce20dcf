"""Prefill: run a prompt through a model, whole or in chunks, and call the watchers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.attach import require_attachment
from optimized.models.attention import attentions, decoder_of, unrotated_queries
from optimized.models.cache import AttendingCache
from optimized.models.eviction_cache import EvictionCache, EvictionLayer
from reference.contract.checks import must_be
from reference.contract.types import Positive


class Step(NamedTuple):
    """The tensors of one layer after one chunk of the prompt.

    Queries and hidden states are those of the chunk; keys and values those of all tokens so far.
    """

    layer: int
    """Its index among the layers that see the whole text."""
    queries: Float[Tensor, "batch query_heads queries width"]
    """After the rotary embedding, scaled so that logits are products divided by sqrt(width)."""
    keys: Float[Tensor, "batch kv_heads tokens width"]
    """Of all tokens so far, after the rotary embedding."""
    values: Float[Tensor, "batch kv_heads tokens width"]
    valid: Bool[Tensor, "batch tokens"] | None
    """Which tokens so far are not padding; None where none is padding."""
    hidden: Float[Tensor, "batch queries channels"]
    """Input of the attention, after the norm."""
    attention: nn.Module
    """The layer's attention module, with its projections."""
    cache: EvictionCache
    """The cache that the prompt fills."""


class Prefilled(NamedTuple):
    """A prompt that a model has read into a cache."""

    cache: EvictionCache
    valid: Bool[Tensor, "batch tokens"] | None
    """Which tokens are not padding; None where none is padding."""
    logits: Float[Tensor, "batch vocabulary"]
    """Logits of the last token."""
    input_ids: Int[Tensor, "batch tokens"]
    queries: dict[int, Tensor] = {}  # noqa: RUF012
    """Queries of all tokens of each layer, where they were asked for."""
    exact: frozenset[int] = frozenset()
    """Indices of the layers that keep every token, so that nobody scores them."""

    def layers(self) -> dict[int, EvictionLayer]:
        """Return the layers from which entries are evicted, by their index."""
        return self.cache.whole_layers_but(self.exact)


def prefill(
    model: PreTrainedModel,
    input_ids: Int[Tensor, "batch tokens"],
    attention_mask: Tensor | None = None,
    *,
    chunk: int | None = None,
    watch: Sequence[Callable[[Step], None]] = (),
    keep_queries: bool = False,
    **looked: Tensor,
) -> Prefilled:
    """Read a prompt, whole or in chunks, and call the watchers for each layer and chunk.

    No tensor of size queries × tokens is allocated. A watcher is called once for each layer of a
    chunk, in order, and decides itself what it stores.

    Args:
        model: a model that `attach` prepared.
        input_ids: the prompts, padded on the left.
        attention_mask: 1 at tokens, 0 at padding.
        chunk: how many tokens to read at a time, by default all.
        watch: functions that are called with each `Step`.
        keep_queries: whether to return the queries of all tokens, which GraphKV's edges of kind
            `qk` and `qq` compare.
        looked: other inputs of the model besides ids: `pixel_values` and the like.

    Returns:
        The full cache, ready for `EvictionCache.evict`, the mask and the logits of the last token.

    Raises:
        TypeError: `chunk` is not an integer, or `watch` no list of functions.
        ValueError: the model is not attached, the prompt is empty, `chunk` is below 1, padding is
            not on the left, or the rotary embedding changes with length between two chunks.
    """
    require_attachment(model)
    if not isinstance(watch, Sequence) or not all(map(callable, watch)):
        raise TypeError(f"watch must be a list of functions, got {watch!r}")
    checks.require_token_ids(input_ids, attention_mask)
    must_be("chunk", chunk, Positive | None)
    checks.check_image_inputs(model, input_ids, looked, chunk)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask.long()
    cache = EvictionCache(model.config)
    cache.open = True
    queries: dict[int, Tensor] = {}

    def collect(step: Step) -> None:
        before = queries.get(step.layer, step.queries[:, :, :0])
        queries[step.layer] = torch.cat([before, step.queries], 2)

    with install_watchers(model, cache, [*watch, collect] if keep_queries else watch):
        logits = read(model, cache, input_ids, mask, chunk, looked)
    return Prefilled(cache, cache.valid, logits, input_ids, queries)


def read(
    model: PreTrainedModel,
    cache: AttendingCache,
    ids: Tensor,
    mask: Tensor,
    chunk: int | None,
    looked: Mapping[str, Tensor],
) -> Tensor:
    """Read tokens into a cache, and return the logits of the last one.

    Inputs with one number for each token are cut into the same chunks as the ids. All other inputs
    go with the first chunk. The model computes the positions of images; the cache computes those
    of the text after them.
    """
    logits, tokens = torch.empty(0), ids.shape[1]
    counted = {name: x for name, x in looked.items() if x.shape == ids.shape}
    first = {name: x for name, x in looked.items() if name not in counted}
    positions = dict(position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    counted |= {} if first else positions
    starts = [*range(0, tokens, chunk or tokens)]
    if cache.states and starts[-1] < tokens - 1:  # to restore the state before it
        starts.append(tokens - 1)
    with torch.no_grad():
        for start, stop in pairwise([*starts, tokens]):
            logits = model(
                input_ids=ids[:, start:stop],
                attention_mask=mask[:, :stop],
                past_key_values=cache,
                use_cache=True,
                logits_to_keep=1,
                **{name: x[:, start:stop] for name, x in counted.items()},
                **first,
            ).logits[:, -1]
            if not cache.get_seq_length():
                raise ValueError(
                    "model must cache what it reads, got one that cached nothing: call "
                    "`model.eval()`, or switch gradient checkpointing off"
                )
            first, counted = {}, positions
    cache.looked = tuple(looked)
    if cache.ids is None:  # the decoder got embeddings of images, and no ids
        cache.ids = ids.clone()
    return logits


@contextmanager
def install_watchers(
    model: PreTrainedModel, cache: EvictionCache, watch: Sequence[Callable[[Step], None]]
) -> Iterator[None]:
    """Call the watchers with every step of each layer, as long as the context lasts."""
    if not watch:
        yield
        return
    modules: dict[Any, nn.Module] = {x.layer_idx: x for x in attentions(decoder_of(model))}
    indices = [n for n, layer in enumerate(cache.layers) if isinstance(layer, EvictionLayer)]
    for number, index in enumerate(indices):

        def observe(*tensors: Any, layer: int = number, module: Any = modules[index]) -> None:
            step = Step(layer, *tensors, module, cache)  # pyright: ignore[reportCallIssue]
            for watcher in watch:
                watcher(step)

        cache.layers[index].observe = observe
    try:
        yield
    finally:
        for layer in cache.evictable():
            layer.observe = None


def unrotated(step: Step) -> Float[Tensor, "batch query_heads queries width"]:
    """Return the queries of a step before the rotary embedding, after the norm if there is one."""
    queries = unrotated_queries(step.attention, step.hidden, step.queries.shape[-1])
    if queries is None:
        raise ValueError("step must be of a layer that projects its queries separately")
    return queries.transpose(1, 2)
