"""Quantised caches of the entries that eviction keeps."""

import pickle
from copy import deepcopy

import pytest
import torch

import optimized
import reference
from spec_tests.internal.models.random_model import (
    TOKENS,
    generate,
    logits_after,
    models,
    new_model,
    prompts,
)

WIDE = dict(head_dim=32)
STORES = ("kivi-4", "gear", "kcvt-4")
SYSTEMS = ("streaming_llm", "snapkv+hubkv@layer", "kvzip")
every_system = pytest.mark.parametrize("system", SYSTEMS)
every_store = pytest.mark.parametrize("store", STORES)
every_shape = pytest.mark.parametrize("padded", [False, True])


def wide_model():
    """Return an attached model whose head width is a group of KIVI."""
    return models.attach(new_model("qwen3", **WIDE))


def read_cache(model, system: str, padded: bool, **how):
    """Return a system's cache of a prompt, and all ids and their mask."""
    ids, mask = prompts(6)
    mask = mask if padded else torch.ones_like(mask)
    return models.compressed(model, system, ids[:, :TOKENS], mask[:, :TOKENS], **how), ids, mask


def restore_by_specification(store: str, keys, values):
    """Return the keys and values that a quantiser of the specification restores."""
    if store == "kivi-4":
        return reference.kivi_read(reference.kivi_prefill(keys, values, bits=4))
    if store == "gear":
        return reference.gear_read(reference.gear_prefill(keys, values))
    mass = keys.new_zeros(keys.shape[:-1])
    scored = reference.Scored(mass, mass.bool())
    held = reference.compress(keys, values, scored, store=reference.hex_preset("KCVT-4"))
    assert isinstance(held, reference.HexCache)
    return reference.hex_read(held)


@every_system
@every_store
@every_shape
def test_attention_sees_what_the_store_restores_of_what_is_left(system, store, padded):
    model = wide_model()
    cache, ids, mask = read_cache(model, f"{system}>{store}", padded, ratio=0.5)
    before = models.prefill(model, ids[:, : TOKENS - 1], mask[:, : TOKENS - 1])
    # The system without a store evicts the same entries of the prompt without its last token.
    ours = models.compressed(model, system, ids[:, : TOKENS - 1], mask[:, : TOKENS - 1], ratio=0.5)
    layers = []
    for layer, whole in zip(ours.layers, before.cache.layers, strict=True):
        keys, values = (x.clone() for x in whole.whole)
        seen = torch.zeros(keys.shape[:3], dtype=torch.bool)
        for row in range(2):
            for head in range(2):
                kept, found = entries(layer, row, head), keys[row, head]
                places = [int((found == one).all(-1).nonzero()[0]) for one in kept]
                seen[row, head, places] = True
        if layer.old is None:
            some = (x[seen].view(2, 2, -1, x.shape[-1]) for x in (keys, values))
            k, v = restore_by_specification(store, *some)
            keys[seen], values[seen] = k.flatten(0, 2), v.flatten(0, 2)
        else:
            for row in range(2):
                for head in range(2):
                    at = seen[row, head]
                    some = (x[row, head, at][None, None] for x in (keys, values))
                    k, v = restore_by_specification(store, *some)
                    keys[row, head, at], values[row, head, at] = k[0, 0], v[0, 0]
        layers.append((seen, keys, values))
    actual = logits_after(model, cache, ids, mask, 7)
    expected = stock_logits(model, ids, mask, layers)
    scale = float(expected.abs().max())
    assert float((actual - expected)[mask[:, -7:].bool()].abs().max()) < 1e-3 * scale


def entries(layer, row: int, head: int):
    """Return the keys that a head keeps."""
    if layer.old is None:
        return layer.keys[row, head]
    bounds = layer.old.offsets.tolist()
    pool = row * 2 + head
    return layer.old.keys[bounds[pool] : bounds[pool + 1]]


def stock_logits(model, ids, mask, layers):
    """Return the logits of an eviction cache that holds the given restored entries."""
    prompt = models.prefill(model, ids[:, : TOKENS - 1], mask[:, : TOKENS - 1])
    for layer, (_, keys, values) in zip(prompt.cache.layers, layers, strict=True):
        layer.keys, layer.values = keys, values
    prompt.cache.evict([seen for seen, _, _ in layers])
    return logits_after(model, prompt.cache, ids, mask, 7)


@every_store
def test_bytes_are_those_of_the_codes(store):
    model = wide_model()
    cache, ids, mask = read_cache(model, f"streaming_llm>{store}", False, keep=20)
    held = [layer.codes.held for layer in cache.layers]
    assert cache.nbytes == optimized.stored_bytes([held, cache.valid])
    copies = deepcopy(cache), pickle.loads(pickle.dumps(cache))
    with cache.undone():
        first = generate(model, ids, mask, cache)
    assert all(torch.equal(generate(model, ids, mask, copy), first) for copy in copies)
    assert torch.equal(generate(model, ids, mask, cache), first)


@every_store
def test_codes_take_less_than_what_they_code(store):
    ids = torch.randint(2, 60, (1, 600), generator=torch.Generator().manual_seed(0))
    left, codes = (
        models.compressed(wide_model(), name, ids, keep=400)
        for name in ("streaming_llm", f"streaming_llm>{store}")
    )
    assert codes.nbytes < left.nbytes / 2


@every_shape
def test_a_row_that_stays_whole_is_coded_whole(padded):
    cache, ids, mask = read_cache(wide_model(), "snapkv>kcvt-4", padded, keep=100)
    assert cache.get_seq_length() == TOKENS - 1
    assert generate(wide_model(), ids, mask, cache).shape == (2, TOKENS + 14)


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
