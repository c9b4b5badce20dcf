"""What a compressed cache says of itself: which tokens it holds, and its share of the bytes."""

from copy import copy

import pytest
import torch

import optimized
from optimized.models.eviction_cache import EvictionCache, EvictionLayer
from optimized.models.read_prompt import EvictingReader
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import CHOSEN, TOKENS, attached_model, models, prompts

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
        assert not mask[1, :, : small.PADDING].any()
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
    small.logits_after(model, cache, *new, 3)
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
    small.logits_after(model, cache, *new, new[0].shape[1] - cache.get_seq_length())
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
    with pytest.raises(ValueError, match="must hold a token, got an empty one"):
        _ = models.EvictionCache(model.config).share
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
        ("h2o", dict(ratio=0.5, protected=torch.ones(2, 3).bool()), r"must have shape \(2, 24\)"),
        ("h2o", dict(ratio=0.5, protected=slice(20, 30)), "of the 19 tokens .* got slice"),
    ],
)
def test_protection_that_cannot_be_had_is_refused(system, more, says):
    options = dict(protected=slice(0, 4)) | more
    with pytest.raises(ValueError, match=says):
        models.compressed(attached_model("llama"), system, **options, **inputs())


LAYERED = ("gear", "kcvt-4", "h2o+hubkv", "kvzip+hubkv", "cake", "snapkv+graphkv", "random>gear")


@pytest.mark.parametrize("system", LAYERED)
@pytest.mark.parametrize("exact", [(0,), (-1,)])
def test_an_exact_layer_keeps_every_token_and_the_others_their_budget(system, exact):
    model, given = attached_model("llama"), inputs()
    budget = {} if system in ("gear", "kcvt-4") else dict(ratio=0.5)
    cache = models.compressed(model, system, exact_layers=exact, **budget, **given)
    whole, masks = full_keys(model, given), cache.kept()
    seen = cache.get_seq_length()
    real = given["attention_mask"][:, None, :seen].bool()
    left = exact[0] % 2
    assert torch.equal(masks[left], real.expand_as(masks[left]))
    held, own = cache.layers[left].whole[0], whole[left][:, :, :seen]
    torch.testing.assert_close(held[masks[left]], own[masks[left]])
    if budget and system != "cake":
        scope = 2 if system.startswith("kvzip") else 1
        tokens = real.sum((1, 2)).tolist()
        counts = [2 // scope * optimized.kept_count(n * scope, 0.5) for n in tokens]
        assert masks[1 - left].sum((1, 2)).tolist() == counts
    plain = models.compressed(model, system, **budget, **given)
    assert plain.nbytes < cache.nbytes < plain.full_nbytes


def test_an_exact_layer_stays_exact_while_decoding():
    model, given = attached_model("llama"), inputs()
    cache = models.compressed(model, "snapkv", keep=8, interval=4, exact_layers=[0], **given)
    ids, mask = (torch.cat([x, x[:, -9:]], 1) for x in given.values())
    small.logits_after(model, cache, ids, mask, ids.shape[1] - cache.get_seq_length())
    first, second = cache.kept()
    assert torch.equal(first, mask[:, None].bool().expand_as(first))
    assert int(second.sum(-1).max()) < 8 + 4


@pytest.mark.parametrize("system", ["snapkv+nms", "kvzip", "knorm@layer"])
def test_each_head_may_have_a_budget_of_its_own(system):
    model, given = attached_model("llama"), inputs()
    cache = models.compressed(model, system, keep=[[8, 9], [11, 7]], **given)
    for mask, counts in zip(cache.kept(), [[8, 9], [11, 7]], strict=True):
        assert mask.sum(-1).tolist() == [counts, counts]
    few: dict = dict(keep=[[2, 9], [7, 7]], protected=slice(4))
    with pytest.warns(UserWarning, match=r"budget 2 of a head .* kept there, in 2 of 2 rows"):
        kept = models.compressed(model, system, **few, **given).kept()
    least = 5 if system == "snapkv+nms" else 4  # with a window of one token
    assert [mask.sum(-1).tolist() for mask in kept] == [[[least, 9]] * 2, [[7, 7]] * 2]
    shares = models.compressed(model, system, ratio=[[0.5, 0.75], [0.0, 0.25]], **given).kept()
    for row, tokens in enumerate(given["attention_mask"].sum(-1).tolist()):
        counts = [mask[row].sum(-1).tolist() for mask in shares]
        wanted = [[0.5, 0.75], [0.0, 0.25]]
        assert counts == [[optimized.kept_count(tokens, x) for x in part] for part in wanted]


@pytest.mark.parametrize(
    ("error", "system", "more", "says"),
    [
        (ValueError, "h2o", dict(exact_layers=(2,)), r"exact_layers must be in -2 … 1, .* got 2"),
        (ValueError, "h2o", dict(exact_layers=(0, -1)), "must leave a layer to compress, got all"),
        (TypeError, "h2o", dict(exact_layers=0), "exact_layers must be a list of integers"),
        (ValueError, "h2o+graphkv", dict(ratio=[[0.5] * 2] * 2), "equally many tokens in all"),
        (ValueError, "h2o", dict(ratio=[[0.5], [0.5]]), "each of 2 key heads, got 1"),
        (TypeError, "h2o", dict(ratio=[[0.5, 0.5], 0.5]), "a list for each, got both"),
    ],
)
def test_layers_and_budgets_that_do_not_fit_are_refused(error, system, more, says):
    with pytest.raises(error, match=says):
        models.compressed(attached_model("llama"), system, **(dict(ratio=0.5) | more), **inputs())


def observed_by_hand(queries, keys, window):
    """Return the attention of the last queries, smoothed over five entries, by key head."""
    tokens = keys.shape[1]
    logits = queries[:, -window:].unflatten(0, (len(keys), -1)) @ keys[:, None].mT
    sees = torch.ones(window, tokens).tril(tokens - window).bool()
    weights = (logits / keys.shape[-1] ** 0.5).masked_fill(~sees, -torch.inf).softmax(-1)
    paid = weights.sum(-2)[..., : tokens - window]
    padded = torch.nn.functional.pad(paid, (2, 2))
    return padded.unfold(-1, 5, 1).mean(-1).mean(1)


def expected_by_hand(step, seen, window, keys, values, frequencies):
    """Return the attention that the next 512 positions are expected to pay the values."""

    def turn(angles):
        cosines, sines = angles.cos().diag(), angles.sin().diag()
        return torch.cat([torch.cat([cosines, -sines], 1), torch.cat([sines, cosines], 1)])

    width, paid = keys.shape[-1], []
    last = step.attention.q_proj(step.hidden)[0, seen - window : seen].double()
    rotation = torch.stack([turn((seen + n) * frequencies) for n in range(512)]).mean(0)
    groups = last.view(window, 2, 2, width).movedim(0, 2)
    for group, key, value in zip(groups, keys, values, strict=True):
        mean, spread = (
            group.mean(1),
            torch.stack([queries.T.cov(correction=0) for queries in group]),
        )
        logits = mean @ rotation.T @ key.T / width**0.5
        logits += ((key @ (rotation @ spread @ rotation.T)) * key).sum(-1) / (2 * width)
        paid.append(logits[:, 4:].softmax(-1).mean(0) * value[4:].norm(dim=-1))
    return torch.stack(paid)


@torch.no_grad()
@pytest.mark.parametrize("system", ["snapkv", "expected_attention"])
def test_while_decoding_it_keeps_what_its_last_queries_look_at(system):
    model, (ids, _) = attached_model("llama"), prompts(8)
    ids, window, target, interval = ids[:1], 3, 10, 4
    steps = []
    models.prefill(model, ids, watch=[steps.append])
    queries, keys, values = (x[0].double() for x in steps[0][1:4])
    frequencies = model.model.rotary_emb.inv_freq
    places = torch.arange(TOKENS).expand(2, -1)
    for seen in (TOKENS, TOKENS + interval, TOKENS + 2 * interval):
        if seen > TOKENS:
            places = torch.cat([places, torch.arange(seen - interval, seen).expand(2, -1)], 1)
        index = places[..., None].expand(-1, -1, keys.shape[-1])
        held = keys.gather(1, index), values.gather(1, index)
        if system == "snapkv":
            rest = observed_by_hand(queries[:, :seen], held[0], window)[:, 4:]  # four sinks stay
        else:
            rest = expected_by_hand(steps[0], seen, window, *held, frequencies.double())
            rest = rest[:, :-window]
        best = rest.topk(target - window - 4, -1).indices.sort().values
        paid, best = rest.gather(1, best), best + 4
        ends = torch.arange(4), torch.arange(places.shape[1] - window, places.shape[1])
        chosen = torch.cat([ends[0].expand(2, -1), best, ends[1].expand(2, -1)], 1)
        places = places.gather(1, chosen)
    settings = optimized.DecodingConfig(target, interval, "head")
    options = dict(window=window)
    options |= dict(frequencies=frequencies) if system == "expected_attention" else {}
    cache = models.DecodingTransformersCache(model.config, settings, system, options=options)
    small.logits_after(model, cache, ids[:, :TOKENS], torch.ones(1, TOKENS).long(), TOKENS)
    for stop in range(TOKENS + 1, TOKENS + 9):
        small.logits_after(model, cache, ids[:, :stop], torch.ones(1, stop).long(), 1)
    assert torch.equal(cache.kept()[0][0].nonzero()[:, 1].view(2, -1), places)
    torch.testing.assert_close(cache.layers[0].held.scores[0][:, 4:-window], paid.float())


def test_sinks_stay_while_decoding():
    model, (ids, _) = attached_model("llama"), prompts()
    for sinks in (0, 6):
        chosen = dict(settings={"sinks": sinks}, keep=14, interval=4)
        cache = models.compressed(model, "expected_attention", ids, **chosen)
        assert {config.held.config.sinks for config in cache.layers} == {sinks}
        masks = [mask[..., :6].all(-1) for mask in cache.kept()]
        assert all(bool(mask.all()) is (sinks == 6) for mask in masks)


@pytest.mark.parametrize("system", ["full", "snapkv", "kivi-4"])
def test_gradients_go_through_steps_where_queries_alone_learn(system):
    model, ids = attached_model("llama"), prompts()[0].repeat(1, 250)
    how = {"snapkv": dict(ratio=0.5), "kivi-4": dict(settings={"group": 8})}
    cache = models.compressed(model, system, ids, **how.get(system, {}))
    model.requires_grad_(False)
    wanted = model.model.layers[0].self_attn.q_proj.weight.requires_grad_(True)
    steps = [model(input_ids=ids[:, n : n + 1], past_key_values=cache).logits for n in range(3)]
    (slope,) = torch.autograd.grad(steps[-1].sum(), [wanted])
    assert bool(slope.isfinite().all() & slope.any())


CUT = ("snapkv+hubkv", "h2o>gear", "knorm@layer", "snapkv+graphkv", "expected_attention", "random")


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@pytest.mark.parametrize("system", CUT)
def test_a_layer_that_is_cut_when_it_was_read_holds_the_same(system, kind, monkeypatch):
    model, given = attached_model(kind), inputs()
    if kind == "gemma2" and system == "expected_attention":
        pytest.skip("expected attention needs another scale")
    cut = models.compressed(model, system, ratio=0.5, **given)
    monkeypatch.setattr(EvictingReader, "cuts", lambda *_: False)
    later = models.compressed(model, system, ratio=0.5, **given)
    assert_equal(cut.kept(), later.kept())
    assert cut.nbytes == later.nbytes
    ids, mask = prompts(3)
    assert_equal(
        *(small.logits_after(model, x, ids, mask, 27 - x.get_seq_length()) for x in (cut, later))
    )


def test_a_prompt_is_never_held_whole(monkeypatch):
    model, held = attached_model("llama"), []
    ids = prompts()[0]
    adopt = EvictionLayer.adopt

    def noted(layer, left):
        held.append(optimized.stored_bytes([x.layers for x in alive]))
        adopt(layer, left)

    alive = []
    made = EvictionCache.__init__
    monkeypatch.setattr(EvictionCache, "__init__", lambda x, c: (made(x, c), alive.append(x))[0])
    monkeypatch.setattr(EvictionLayer, "adopt", noted)
    cache = models.compressed(model, "knorm", ids, ratio=0.75)
    assert max(held) < 0.7 * cache.full_nbytes
