"""Every cache, in every kind of call, against a stock model that masks instead of evicting."""

from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import pad

import optimized
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.oracle import Turn, VisibleEntries, assert_logits
from spec_tests.internal.models.random_model import KEYED, TOKENS, attached_model, cross, models

# The end of each call after the prompt: token by token, or questions; whether a row is padded. No
# call has tokens of two blocks of HEX, or of two intervals.
STEPS, TURNS = (25, 26, 27, 28, 29), (28, 32, 35)
STORIES = {"prompt": (STEPS, False), "padded": (STEPS, True), "second turn": (TURNS, False)}
ANSWER = 4
"""Number of tokens to generate; the first one reads the prompt's last token again."""


def batch_of(story: str) -> tuple[tuple[int, ...], Tensor, Tensor]:
    """Return the end of each call, all ids, and their mask."""
    stops, padded = STORIES[story]
    ids, mask = small.prompts(stops[-1] - TOKENS)
    return stops, ids, mask if padded else torch.ones_like(mask)


def logits_of_calls(model, cache, start: int, stops, ids: Tensor, mask: Tensor) -> Tensor:
    """Return the logits of successive calls, with positions and masks as in `generate`."""
    read, positions = [], (mask.cumsum(-1) - 1).clamp(min=0)
    for stop in stops:
        inputs = dict(input_ids=ids[:, start:stop], position_ids=positions[:, start:stop])
        with torch.no_grad():
            out = model(**inputs, attention_mask=mask[:, :stop], past_key_values=cache)
        read.append(out.logits)
        start = stop
    return torch.cat(read, 1)


def random_sets(kind: str, mask: Tensor, ragged: bool) -> Tensor:
    """Return random masks of kept entries without padding; heads may keep different numbers."""
    draw = torch.Generator().manual_seed(5)
    heads = small.key_heads(kind)
    kept = torch.zeros(
        small.count_keyed_layers(kind), *mask.shape[:1], heads, TOKENS, dtype=torch.bool
    )
    for index, head in enumerate(kept.view(-1, TOKENS)):
        real = mask[index // heads % len(mask), :TOKENS].nonzero()[:, 0]
        count = 3 + 2 * (index % 5) if ragged else 9
        head[real[torch.randperm(len(real), generator=draw)[:count]]] = True
    return kept


def by_layer(kind: str, layers: Iterable[VisibleEntries]) -> tuple[VisibleEntries | None, ...]:
    """Return the visible entries of every layer, None for layers that do not see all the text."""
    keyed, seen = [*layers], small.full_attention_layers(kind)
    assert len(keyed) == small.count_keyed_layers(kind)
    return tuple(keyed[seen[n]] if n in seen else None for n in range(max(seen) + 1))


def turns_after_eviction(kind: str, kept: Tensor, stops) -> tuple[Turn, ...]:
    """Return the prompt's turn, then turns that see its kept entries and all later tokens."""
    turns, start = [Turn(kept.shape[-1])], kept.shape[-1]
    for stop in stops:
        since = torch.ones(*kept.shape[1:-1], start - kept.shape[-1], dtype=torch.bool)
        layers = (VisibleEntries(torch.cat([layer, since], -1)) for layer in kept)
        turns.append(Turn(stop, by_layer(kind, layers)))
        start = stop
    return tuple(turns)


def restored_entries(read: Callable, layer, _) -> VisibleEntries:
    """Return all tokens of a layer as its codes restore them; rows are padded on the left."""
    stored = layer.cache if hasattr(layer, "cache") else layer.held
    views = [read(row) for row in (stored if type(stored) is tuple else [stored])]
    longest = max(view[0].shape[2] for view in views)
    keys, values = (
        torch.cat([pad(x, (0, 0, longest - x.shape[2], 0)) for x in rows])
        for rows in zip(*views, strict=True)
    )
    return VisibleEntries(torch.ones(keys.shape[:3], dtype=torch.bool), keys, values)


def surviving_entries(layer, mask: Tensor) -> VisibleEntries:
    """Return the mask of stored tokens, shifted by the padding of their row."""
    view, shifts = optimized.decoding_read(layer.held), (mask == 0).sum(1).tolist()
    seen = torch.zeros(*view.positions.shape[:-1], layer.seen, dtype=torch.bool)
    for row, head, slot in view.present.nonzero().tolist():
        seen[row, head, int(view.positions[row, head, slot]) + shifts[row]] = True
    return VisibleEntries(seen)


def assert_what_is_stored_is_seen(kind: str, story: str, cache, past: Callable) -> tuple[Turn, ...]:
    """Compare a cache with the oracle, which sees what the cache stores before each call."""
    stops, ids, mask = batch_of(story)
    read, turns, start = [], [Turn(TOKENS)], TOKENS
    logits_of_calls(attached_model(kind), cache, 0, [TOKENS], ids, mask)
    layers = [layer for layer in cache.layers if hasattr(layer, "held") and not layer.is_sliding]
    for stop in stops:
        turns.append(Turn(stop, by_layer(kind, (past(layer, mask) for layer in layers))))
        read.append(logits_of_calls(attached_model(kind), cache, start, [stop], ids, mask))
        start = stop
    actual = torch.cat(read, 1)
    assert_logits(actual, kind, ids, mask, actual.shape[1], tuple(turns))
    return tuple(turns)


@pytest.mark.parametrize(
    ("kind", "story", "ragged"), cross(small.CHOSEN, [*STORIES], [False, True])
)
def test_what_survives_an_eviction_is_attended_to_and_nothing_else(kind, story, ragged):
    stops, ids, mask = batch_of(story)
    chunk = 7 if story == "padded" else None
    prompt = models.prefill(attached_model(kind), ids[:, :TOKENS], mask[:, :TOKENS], chunk=chunk)
    kept = random_sets(kind, mask, ragged)
    prompt.cache.evict(kept)
    assert (prompt.cache.evictable()[0].old is not None) == ragged
    actual = logits_of_calls(attached_model(kind), prompt.cache, TOKENS, stops, ids, mask)
    assert_logits(actual, kind, ids, mask, actual.shape[1], turns_after_eviction(kind, kept, stops))


@pytest.mark.parametrize(("kind", "story", "mode"), cross(KEYED, [*STORIES], ["append", "full"]))
def test_hex_attends_to_what_it_restores_and_to_its_new_tokens(kind, story, mode):
    settings = optimized.HexConfig(density=0.0, block=8, recent=2, mode=mode)
    cache = models.HexTransformersCache(attached_model(kind).config, settings)
    past = partial(restored_entries, optimized.hex_read)
    assert_what_is_stored_is_seen(kind, story, cache, past)


@pytest.mark.parametrize(("kind", "story", "name"), cross(KEYED, [*STORIES], ["kivi-2", "gear"]))
def test_a_quantiser_attends_to_what_it_restores_and_to_its_new_tokens(kind, story, name):
    narrow: Any = SimpleNamespace(**vars(optimized))  # heads are narrower than the paper's groups
    narrow.kivi_prefill = partial(optimized.kivi_prefill, group=8, residual=8)
    cache = models.QuantizedTransformersCache(attached_model(kind).config, name, kv=narrow)
    past = partial(restored_entries, getattr(optimized, f"{name.partition('-')[0]}_read"))
    assert_what_is_stored_is_seen(kind, story, cache, past)


@pytest.mark.parametrize(("kind", "story", "scope"), cross(KEYED, [*STORIES], ["head", "layer"]))
def test_a_cache_that_decodes_attends_to_the_tokens_it_holds(kind, story, scope):
    settings = optimized.DecodingConfig(10, interval=4, scope=scope)
    scorer = "snapkv" if story == "padded" else "h2o"
    cache = models.DecodingTransformersCache(attached_model(kind).config, settings, scorer)
    turns = assert_what_is_stored_is_seen(kind, story, cache, surviving_entries)
    past = turns[-1].layers[min(small.full_attention_layers(kind))]
    assert past is not None
    assert not past.seen.all()


@pytest.mark.parametrize(
    ("kind", "kind_of_set", "padded"),
    cross(small.CHOSEN, ["dense", "ragged", "recent", "old"], [False, True]),
)
def test_generating_from_the_prompt_alone_reads_its_last_token_again(kind, padded, kind_of_set):
    ids, mask = small.prompts()
    mask = mask if padded else torch.ones_like(mask)
    prompt = models.prefill(attached_model(kind), ids, mask)
    kept = random_sets(kind, mask, ragged=kind_of_set == "ragged")
    if kind_of_set in ("recent", "old"):  # either every head keeps the last token, or none does
        kept = torch.zeros_like(kept)
        kept[..., -9:] = True
        kept[..., -1] = kind_of_set == "recent"
    prompt.cache.evict(kept)
    how = dict(max_new_tokens=ANSWER, do_sample=False, output_logits=True)
    how |= dict(return_dict_in_generate=True)
    out = attached_model(kind).generate(
        ids, attention_mask=mask, past_key_values=prompt.cache, **how
    )
    assert prompt.cache.get_seq_length() == TOKENS + ANSWER - 1
    read = out.sequences[:, :-1]
    every = torch.cat([mask, mask.new_ones(2, ANSWER - 1)], 1)
    turns = turns_after_eviction(kind, kept[..., :-1], range(TOKENS, TOKENS + ANSWER))[1:]
    first = (Turn(TOKENS - 1), *turns)
    assert_logits(torch.stack(out.logits, 1), kind, read, every, ANSWER, first)
