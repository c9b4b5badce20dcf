"""Tokens after the prompt can be removed again, as assisted decoding does."""

from copy import deepcopy

import pytest
import torch

from optimized.models import attending_layer
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    logits_after,
    models,
    prompts,
)

SYSTEMS = ("full", "snapkv", "kvzip+hubkv", "knorm@layer", "snapkv+graphkv", "random>gear")


def compressed_prompt(system, rows, kind="llama"):
    """Return an attached model, the cache of a prompt, and ids and mask with new tokens."""
    ids, mask = (x[:rows] for x in prompts(6))
    budget = {} if system == "full" else dict(ratio=0.5)
    model = attached_model(kind)
    cache = models.compressed(model, system, ids[:, :TOKENS], mask[:, :TOKENS], **budget)
    return model, cache, ids, mask


@pytest.mark.parametrize("new", [0, 3])
@pytest.mark.parametrize("system", SYSTEMS)
def test_candidates_from_the_prompt_change_no_answer(system, new):
    if new == 0 and ">" in system:
        pytest.skip("codes cannot remove the last token of the prompt")
    model, cache, ids, _ = compressed_prompt(system, 1)
    repeated = torch.cat([ids[:, :TOKENS], ids[:, 2 : 2 + new]], 1)
    how = dict(past_key_values=cache, max_new_tokens=12, do_sample=False)
    with cache.undone():
        plain = model.generate(repeated, **how)
    with cache.undone():
        looked = model.generate(repeated, **how, prompt_lookup_num_tokens=4)
        assert cache.get_seq_length() == plain.shape[1] - 1
    assert torch.equal(looked, plain)
    again = model.generate(repeated, **how)
    assert torch.equal(again, plain)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_cropped_cache_goes_on_as_if_it_had_seen_less(system):
    model, cache, ids, mask = compressed_prompt(system, 2)
    with cache.undone():
        expected = logits_after(model, cache, ids, mask, ids.shape[1] - cache.get_seq_length())
    before, kept = cache.nbytes, cache.kept()
    start = cache.get_seq_length()
    other, seen = (torch.cat([x[:, :start], x[:, -4:].flip(1)], 1) for x in (ids, mask))
    logits_after(model, cache, other, seen, 4)
    cache.crop(-4)
    assert cache.get_seq_length() == start
    assert [x.shape for x in cache.kept()] == [x.shape for x in kept]
    logits_after(model, cache, other, seen, 4)
    cache.crop(start)
    actual = logits_after(model, cache, ids, mask, ids.shape[1] - start)
    torch.testing.assert_close(actual, expected)
    assert cache.nbytes > before


def test_an_assistant_drafts_for_a_compressed_prompt():
    model, cache, ids, _ = compressed_prompt("snapkv+hubkv", 1)
    how = dict(past_key_values=cache, max_new_tokens=8, do_sample=False)
    with cache.undone():
        plain = model.generate(ids[:, :TOKENS], **how)
    helped = model.generate(ids[:, :TOKENS], **how, assistant_model=attached_model("granite"))
    assert torch.equal(helped, plain)


@pytest.mark.parametrize("system", ["full", "snapkv", "knorm@layer"])
def test_what_shares_entries_goes_on_by_itself(system, monkeypatch):
    """Steps write new tokens behind the entries, in a buffer that a copy must not share."""
    monkeypatch.setattr(attending_layer, "ROOM", 1)  # each buffer has room for all tokens here
    model, cache, ids, mask = compressed_prompt(system, 2)
    for end in range(cache.get_seq_length() + 1, TOKENS + 4):
        logits_after(model, cache, ids[:, :end], mask[:, :end], 1)

    def two_more(one, tokens):
        for end in (TOKENS + 4, TOKENS + 5):
            got = logits_after(model, one, tokens[:, :end], mask[:, :end], 1)
        return got

    other = ids.flip(1)
    with cache.undone():
        alone = two_more(cache, ids)
    first, held = deepcopy(cache), cache.layers[0].whole[0]
    before = held.clone()
    with torch.inference_mode():
        logits_after(model, first, ids[:, : TOKENS + 4], mask[:, : TOKENS + 4], 1)
    second = deepcopy(first)
    two_more(cache, other)
    assert torch.equal(held, before)
    for one, tokens in ((second, other), (first, ids)):
        last = logits_after(model, one, tokens[:, : TOKENS + 5], mask[:, : TOKENS + 5], 1)
    assert torch.equal(last, alone)
