"""`compressed` returns the cache of every named system in one call."""

from unittest.mock import MagicMock

import pytest
import torch

import optimized
from optimized.models import SCORERS
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import PADDING, TOKENS, attached_model, models, prompts
from spec_tests.internal.models.test_laws import HEX


def inputs_of(padded: bool = True) -> dict:
    """Return the inputs that a tokenizer returns for the prompts."""
    ids, mask = prompts()
    return dict(input_ids=ids, attention_mask=mask if padded else torch.ones_like(mask))


def test_hex_in_two_lines_is_the_cache_that_reads_all_at_once():
    model, ids, settings = attached_model("llama"), prompts(1)[0], HEX._replace(heavy=0.5)
    at_once = models.HexTransformersCache(model.config, settings)
    with torch.no_grad():  # three blocks
        model(ids[:, :-1], past_key_values=at_once)
    for chunk in (None, 7):
        cache = models.compressed(model, settings, ids, chunk=chunk)
        for mine, other in zip(cache.layers, at_once.layers, strict=True):
            assert_equal(mine.held.blocks[0].dynamic, other.held.blocks[0].dynamic)


READINGS = {
    "gear": {},
    "hex-4": {},
    "streaming_llm>gear": dict(ratio=0.25),
    "snapkv+graphkv": dict(ratio=0.5),
}


@pytest.mark.parametrize("system", READINGS)
def test_a_reading_changes_what_is_seen_of_a_prompt(system):
    model = models.attach(small.new_model("llama", head_dim=64))  # 128 channels, as HEX-4 needs
    ids = torch.randint(2, small.VOCABULARY, (1, 200), generator=torch.Generator().manual_seed(0))
    caches = [
        models.compressed(model, system, ids[:, :-3], reading=reading, **READINGS[system])
        for reading in ("letter", "remedied")
    ]
    both = [
        small.logits_after(model, cache, ids, torch.ones_like(ids), 200 - cache.get_seq_length())
        for cache in caches
    ]
    assert not torch.allclose(both[0][:, -3:], both[1][:, -3:])


def test_a_share_at_every_interval_is_of_the_longest_row():
    counts = []
    for how in (dict(ratio=0.75), dict(keep=TOKENS // 4)):
        cache = models.compressed(attached_model("llama"), "h2o", interval=4, **inputs_of(), **how)
        counts.append([optimized.decoding_read(layer.held).present for layer in cache.layers])
    assert_equal(*counts)


def entry_counts(cache):
    """Return how many entries each head of each layer holds, rows first."""
    return [
        layer.keys.shape[2] + layer.old.offsets.diff().view(2, -1)
        if layer.old is not None
        else torch.full((2, 2), layer.keys.shape[2])
        for layer in cache.evictable()
    ]


RANKING = [name for name in SCORERS if name != "fastkvzip"]
REFINED = [
    f"{name}{suffix}" for name in ("snapkv", "kvzip") for suffix in ("+hubkv", "+graphkv@head")
]


@pytest.mark.parametrize("name", [*RANKING, *REFINED, "snapkv@layer", "snapkv@model"])
def test_a_budget_of_more_than_a_row_has_keeps_the_row_whole(name):
    inputs = inputs_of()
    cache = models.compressed(attached_model("llama"), name, keep=512, **inputs)
    for layer in entry_counts(cache):
        assert (layer >= torch.tensor([[TOKENS], [TOKENS - PADDING]])).all()
    cache = models.compressed(attached_model("llama"), name, keep=TOKENS - PADDING, **inputs)
    for layer in entry_counts(cache):
        assert layer[1].tolist() == [TOKENS - PADDING] * 2


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("kvzip", 5),
        ("kvzip+hubkv", 5),
        ("kvzip+graphkv@head", 5),
        ("snapkv", 1),
        ("snapkv@model", 1),
        ("cake", 2),
        ("pyramidkv", 1),
        ("expected_attention", 4),
        ("streaming_llm", 4),
    ],
)
def test_of_a_budget_below_what_is_protected_that_alone_is_left(name, left):
    ids = prompts(38)[0]
    model, how = attached_model("llama"), dict(input_ids=ids, ratio=0.995)
    with pytest.warns(
        UserWarning, match=r"budget \d+ of a \w+ is below .* in 2 of 2 rows"
    ) as found:
        cache = models.compressed(model, name, **how)
    assert len(found) == 1
    assert [layer.tolist() for layer in entry_counts(cache)] == [[[left] * 2] * 2] * 2
    assert model.generate(ids, past_key_values=cache, max_new_tokens=2).shape == (2, 64)


@pytest.mark.parametrize("name", ["snapkv", "pyramidkv+graphkv", "cake"])
def test_a_window_is_cut_to_the_budget_and_is_half_of_it_by_default(name):
    ids = prompts(38)[0]
    for keep, given, window in ((5, {"window": 32}, 5), (12, {}, 6)):
        actual, expected = (
            models.compressed(attached_model("llama"), name, ids, keep=keep, settings=settings)
            for settings in (given, {"window": window})
        )
        for layer, same in zip(actual.evictable(), expected.evictable(), strict=True):
            assert_equal((layer.whole, layer.old), (same.whole, same.old))


@pytest.mark.parametrize("system", ["snapkv+hubkv", "kvzip", "streaming_llm@layer"])
@pytest.mark.parametrize("padded", [False, True])
def test_each_layer_can_have_a_budget_of_its_own(system, padded):
    ids, mask = prompts()
    mask = mask if padded else torch.ones_like(mask)
    counts = mask.sum(-1)
    for how in (dict(ratio=[0.25, 0.5]), dict(ratio=[0.0, 0.5]), dict(keep=[20, 12])):
        cache = models.compressed(attached_model("llama"), system, ids, mask, **how)
        for layer, entries in enumerate(entry_counts(cache)):
            shares = how.get("ratio")
            left = [shares and optimized.kept_count(int(n), shares[layer]) for n in counts]
            kept = torch.tensor(left) if shares else counts.clamp(max=how["keep"][layer])
            assert_equal(entries.sum(-1), 2 * kept)


def test_kvzip_asks_in_words_where_it_is_given_a_tokenizer():
    ids, words = prompts()[0][:1], MagicMock(wraps=small.word_tokenizer())
    how = dict(system="kvzip", input_ids=ids, ratio=0.5)
    silent, worded = (
        models.compressed(
            attached_model("llama"), **how, settings=dict(chunk=12, sinks=2, **settings)
        )
        for settings in ({}, {"tokenizer": words})
    )
    start = " ".join(f"w{token}" for token in ids[0, 14:22].tolist())
    assert [call.args[0] for call in words.call_args_list] == [
        "\n\nRepeat the previous context exactly. w3",
        f"\n\nRepeat the part of the previous context exactly, starting with `{start}`. w3",
    ]
    assert any(layer.old is not None for layer in worded.evictable())  # of the whole model
    with pytest.raises(AssertionError):
        assert_equal(*([(x.whole, x.old) for x in cache.evictable()] for cache in (silent, worded)))
