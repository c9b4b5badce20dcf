"""What a compressed cache says of itself: which tokens it holds, and its share of the bytes."""

from copy import copy

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import (
    CHOSEN,
    PADDING,
    TOKENS,
    attached_model,
    logits_after,
    models,
    prompts,
)

EVICTING = ("snapkv", "kvzip+hubkv", "h2o+graphkv", "pyramidkv", "random@layer", "knorm+nms@layer")


def inputs(rows=2):
    ids, mask = (x[:rows] for x in prompts())
    return dict(input_ids=ids, attention_mask=mask)


def full_keys(model, given):
    """Return the keys of every layer that sees the whole text, before any eviction."""
    cache = models.compressed(model, "full", **given)
    return [layer.whole[0] for layer in cache.evictable()]


def stored_keys(layer):
    """Yield the stored keys of the prompt, row by row and head by head."""
    if layer.old is None:
        yield from layer.keys.flatten(0, 1)
    else:
        yield from layer.old.keys.split(layer.old.offsets.diff().tolist())


@pytest.mark.parametrize("system", EVICTING)
def test_the_kept_tokens_are_those_whose_keys_are_stored(system):
    model, given = attached_model("llama"), inputs()
    cache = models.compressed(model, system, ratio=0.5, **given)
    masks, whole = cache.kept(), full_keys(model, given)
    for layer, mask, keys in zip(cache.evictable(), masks, whole, strict=True):
        assert mask.shape == keys.shape[:-1]
        assert not mask[1, :, :PADDING].any()
        stored = stored_keys(layer)
        for flags, own, held in zip(mask.flatten(0, 1), keys.flatten(0, 1), stored, strict=True):
            assert_equal(own[flags], held)


@pytest.mark.parametrize("kind", CHOSEN)
def test_tokens_after_the_prompt_are_kept_and_rows_take_their_masks_along(kind):
    model, given = attached_model(kind), inputs()
    cache = models.compressed(model, "knorm", ratio=0.5, **given)
    before = cache.kept()
    ids, mask = given["input_ids"], given["attention_mask"]
    new = torch.cat([ids, ids[:, -3:]], 1), torch.cat([mask, mask[:, -3:]], 1)
    logits_after(model, cache, *new, 3)
    for earlier, later in zip(before, cache.kept(), strict=True):
        assert torch.equal(later[..., :TOKENS], earlier)
        assert later[..., TOKENS:].all()
    other = copy(cache)
    other.batch_select_indices(torch.tensor([1, 1, 0]))
    for one, of in zip(cache.kept(), other.kept(), strict=True):
        assert torch.equal(of, one[[1, 1, 0]])


@pytest.mark.parametrize("system", ["h2o", "knorm@layer", "streaming_llm"])
def test_a_cache_that_shrinks_while_decoding_says_what_it_holds(system):
    model, given = attached_model("llama"), inputs()
    cache = models.compressed(model, system, keep=8, interval=4, **given)
    ids, mask = given["input_ids"], given["attention_mask"]
    new = torch.cat([ids, ids[:, -6:]], 1), torch.cat([mask, mask[:, -6:]], 1)
    logits_after(model, cache, *new, new[0].shape[1] - cache.get_seq_length())
    whole = full_keys(model, dict(input_ids=new[0], attention_mask=new[1]))
    for index, (layer, kept) in enumerate(zip(cache.layers, cache.kept(), strict=True)):
        view = layer.kv.decoding_read(layer.held)
        assert torch.equal(kept.sum(-1), view.present.sum(-1))
        if index == 0:  # of the first layer, evicted tokens have changed no key
            for row in range(2):
                for head in range(2):
                    held = view.keys[row, head][view.present[row, head]]
                    torch.testing.assert_close(whole[0][row, head][kept[row, head]], held)


@pytest.mark.parametrize("system", ["gear", "full"])
def test_a_store_keeps_every_token(system):
    model, given = attached_model("llama"), inputs()
    cache = models.compressed(model, system, **given)
    real = given["attention_mask"][:, : cache.get_seq_length()].bool()
    for mask in cache.kept():
        assert torch.equal(mask, real[:, None].expand_as(mask))


@pytest.mark.parametrize("kind", CHOSEN)
def test_a_full_cache_has_the_bytes_of_a_full_cache(kind):
    model, given = attached_model(kind), inputs(1)
    cache = models.compressed(model, "full", **given)
    assert cache.full_nbytes == cache.nbytes
    assert cache.share == 1
    half = models.compressed(model, "streaming_llm", ratio=0.5, **given)
    assert half.full_nbytes == cache.nbytes
    assert half.share == half.nbytes / cache.nbytes < 1


@pytest.mark.parametrize("system", EVICTING)
@pytest.mark.parametrize("padded", [False, True])
def test_protected_tokens_are_kept_within_the_budget(system, padded):
    model, given = attached_model("llama"), inputs()
    if not padded:
        given["attention_mask"] = torch.ones_like(given["attention_mask"])
    real = given["attention_mask"].bool()
    wanted = torch.zeros_like(real)
    for row, flags in zip(wanted, real, strict=True):
        row[flags.nonzero()[6:10, 0]] = True
    ratio = 0.1 if system == "pyramidkv" else 0.4  # its smallest budgets are small
    plain, cache, named = (
        models.compressed(model, system, ratio=ratio, protected=protected, **given)
        for protected in (None, slice(6, 10), wanted)
    )
    for mask, same in zip(cache.kept(), named.kept(), strict=True):
        assert torch.equal(mask, same)
        assert (mask | ~wanted[:, None]).all()
    total = [sum(int(mask.sum()) for mask in one.kept()) for one in (cache, plain)]
    assert total[0] == total[1]
    assert any(not (m | ~wanted[:, None]).all() for m in plain.kept())


def test_protected_tokens_lie_in_codes_as_well():
    model, given = attached_model("llama"), inputs(1)
    cache = models.compressed(model, "knorm>gear", ratio=0.5, protected=slice(4, 9), **given)
    for mask in cache.kept():
        assert mask[..., 4:9].all()
        assert not mask.all()


@pytest.mark.parametrize(
    ("system", "more", "says"),
    [
        ("gear", {}, "protected must be None for 'gear', got slice"),
        ("h2o", dict(keep=8, interval=4), "with an interval"),
        (
            "h2o",
            dict(ratio=0.5, protected=torch.ones(2, 3).bool()),
            r"protected must have shape \(2, 24\)",
        ),
    ],
)
def test_protection_that_cannot_be_had_is_refused(system, more, says):
    options = dict(protected=slice(0, 4)) | more
    with pytest.raises(ValueError, match=says):
        models.compressed(attached_model("llama"), system, **options, **inputs())
