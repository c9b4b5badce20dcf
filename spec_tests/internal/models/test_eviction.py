"""Eviction by hand, and codes of what it keeps: bytes, budgets and scopes."""

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import TOKENS, models, new_model, prompts, read
from spec_tests.internal.models.test_laws import HEX, attached, batch

SCORES = torch.rand(2, 2, 2, TOKENS, generator=torch.Generator().manual_seed(0))
"""Of every layer, row, head and token."""
SCORED = [optimized.Scored(scores, torch.zeros_like(scores, dtype=torch.bool)) for scores in SCORES]
every_scope = pytest.mark.parametrize("scope", ["head", "layer", "model"])


def compressed(compressor, padded: bool = True, **how):
    """Return the layers of a cache after one of the compressors."""
    cache = read("llama", padded)[0].cache
    cache.compress(SCORED, compressor, **how)
    return [(layer.whole, layer.old) for layer in cache.evictable()]


@every_scope
@pytest.mark.parametrize("padded", [False, True])
def test_half_of_the_entries_are_half_of_the_bytes(scope, padded):
    prompt, _, _ = read("llama", padded)
    cache, start = prompt.cache, small.PADDING * padded
    entry, flags = 2 * 8 * 4, 2 * TOKENS * padded  # key and value of width 8, and the mask
    assert cache.nbytes == 2 * 2 * 2 * TOKENS * entry + flags
    kept = torch.zeros(2, 2, 2, TOKENS, dtype=torch.bool)
    for row, first in ((0, 0), (1, start)):  # each row without its padding
        real = SCORES[:, row, :, first:]
        kept[:, row, :, first:] = reference.retain(real, ratio=0.5, scope=scope)
    cache.evict(kept)
    offsets = sum(x.old.offsets.numel() * 8 for x in cache.evictable() if x.old is not None)
    assert cache.nbytes == int(kept.sum()) * entry + offsets + flags
    again = compressed(optimized.compress, padded, scope=scope, ratio=0.5)
    assert_equal(again, [(layer.whole, layer.old) for layer in cache.evictable()])


def test_budgets_are_what_each_head_of_a_row_keeps():
    budgets, graph = torch.tensor([[9, 9], [3, 3]]), optimized.GraphSettings(4)
    layers = compressed(optimized.compress, padded=False, budgets=budgets)
    assert [whole[0].shape[2] for whole, _ in layers] == [9, 3]
    how = dict(budgets=torch.tensor([[9, 4], [3, 8]]), refinement=graph)
    layers = compressed(optimized.graphkv_compress, padded=False, **how)
    counts = [old.offsets.diff().tolist() for _, old in layers if old is not None]
    assert counts == [[9, 9, 4, 4], [3, 3, 8, 8]]


STORES = ("kivi-4", "gear", "kcvt-4")
SYSTEMS = ("streaming_llm", "snapkv+hubkv@layer", "kvzip")
every_store = pytest.mark.parametrize("store", STORES)


def restore_by_specification(store: str, keys, values):
    """Return the keys and values that a quantiser of the specification restores."""
    if store == "kivi-4":
        return reference.kivi_read(reference.kivi_prefill(keys, values, bits=4))
    if store == "gear":
        return reference.gear_read(reference.gear_prefill(keys, values))
    mass = keys.new_zeros(keys.shape[:-1])
    scored = reference.Scored(mass, mass.bool())
    stored = reference.compress(keys, values, scored, store=reference.hex_preset("KCVT-4"))
    assert isinstance(stored, reference.HexCache)
    return reference.hex_read(stored)


def restore_layer(store: str, layer) -> None:
    """Put restored entries in place of those that eviction left: of all heads, or of each."""
    if layer.old is None:
        layer.keys, layer.values = restore_by_specification(store, layer.keys, layer.values)
        return
    sizes = layer.old.offsets.diff().tolist()
    pools = zip(*(x[None, None].split(sizes, 2) for x in layer.old[:2]), strict=True)
    parts = [restore_by_specification(store, *pool) for pool in pools]
    keys, values = (torch.cat([x[0, 0] for x in heads]) for heads in zip(*parts, strict=True))
    layer.old = layer.old._replace(keys=keys, values=values)


@pytest.mark.parametrize("system", SYSTEMS)
@every_store
@pytest.mark.parametrize("padded", [False, True])
def test_attention_sees_what_the_store_restores_of_what_is_left(system, store, padded):
    model, (ids, mask) = attached("llama"), batch(padded, 3)
    cache, exact = (
        models.compressed(model, name, ids[:, :stop], mask[:, :stop], ratio=0.5)
        # The system without a store evicts the same entries of the prompt without its last token.
        for name, stop in ((f"{system}>{store}", -3), (system, -4))
    )
    for layer in exact.layers:
        restore_layer(store, layer)
    actual, expected = (
        small.logits_after(model, filled, ids, mask, 4) for filled in (cache, exact)
    )
    assert_close(actual, expected.double(), 32.0)


def test_the_scores_of_what_is_left_select_the_heavy_hitters_of_hex():
    model = models.attach(new_model("llama", head_dim=64))  # 128 channels, as HEX-4 needs
    ids = torch.randint(2, 60, (1, 201), generator=torch.Generator().manual_seed(0))
    cache = models.compressed(model, "knorm>hex-4", ids, ratio=0.25)
    exact = models.compressed(model, "knorm", ids[:, :-1], ratio=0.25)
    for layer, left in zip(cache.layers, exact.layers, strict=True):
        scores = reference.knorm(left.keys).scores
        mass = reference.shift_scores(scores.flatten()[None])[0].view_as(scores)
        scored = reference.Scored(mass, torch.zeros_like(mass, dtype=torch.bool))
        store = reference.hex_preset("HEX-4")
        stored = reference.compress(left.keys, left.values, scored, store=store)
        assert isinstance(stored, reference.HexCache)
        assert_equal(layer.held[0].blocks[0].dynamic, stored.blocks[0].dynamic)


@pytest.mark.parametrize("compressor", ["compress", "hubkv_compress", "graphkv_compress"])
def test_refined_scores_name_the_tokens_that_hex_keeps(compressor):
    ids, model = prompts(3)[0], small.attached_model("llama")
    scorer = models.scorer("h2o", model, recent=0)
    prompt = models.prefill(model, ids[:, :TOKENS], watch=[scorer.watch])
    scored = scorer.finish(prompt, TOKENS).scored
    settings, how = HEX._replace(recent=0), dict(ratio=0.75, refinement=optimized.HubSettings())
    how |= dict(sinks=2, recent=0) if compressor == "hubkv_compress" else {}
    how |= dict(refinement=optimized.GraphSettings(4)) if compressor == "graphkv_compress" else {}
    chosen = getattr(optimized, compressor)
    cache = models.HexTransformersCache.of_prompt(prompt, scored, chosen, settings, **how)
    kept = [stored.held.blocks[0].dynamic for stored in cache.layers]
    count = TOKENS // 4 + (2 if compressor == "hubkv_compress" else 0)
    assert all((layer.sum(-1) == count).all() for layer in kept)


@every_store
def test_codes_take_less_than_what_they_code(store):
    ids = torch.randint(2, 60, (1, 600), generator=torch.Generator().manual_seed(0))
    left, codes = (
        models.compressed(attached("llama"), name, ids, keep=400)
        for name in ("streaming_llm", f"streaming_llm>{store}")
    )
    assert codes.nbytes < left.nbytes / 2


@pytest.mark.parametrize(
    ("system", "heads", "width", "got"),
    [
        ("kivi-4", 2, 8, "heads of 8"),
        ("snapkv>kivi-4", 2, 8, "heads of 8"),
        ("kvzip>hex-4", 2, 112, "at least 96.* got 112: all heads"),
        ("kvzip@head>hex-4", 1, 64, "at least 96.* got 64"),
        ("snapkv>hex-3", 2, 100, "a multiple of 32 channels.* got 200"),
        ("snapkv>hex-3", 2, 48, None),
    ],
)
def test_what_a_store_cannot_hold_is_refused_before_a_prompt_is_read(system, heads, width, got):
    model = models.attach(new_model("llama", num_key_value_heads=heads, head_dim=width))
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model was called"))
    how = dict(ratio=0.5) if ">" in system else {}
    with pytest.raises(ValueError if got else pytest.fail.Exception, match=got or "was called"):
        models.compressed(model, system, prompts()[0][:1], **how)
