"""Quantised caches of the entries that eviction keeps."""

import pytest
import torch

import reference
from spec_tests.accuracy import assert_close
from spec_tests.internal.models.random_model import (
    TOKENS,
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


def restore_layer(store: str, layer) -> None:
    """Put restored entries in place of those that eviction left: of all heads, or of each."""
    if layer.old is None:
        layer.keys, layer.values = restore_by_specification(store, layer.keys, layer.values)
        return
    sizes = layer.old.offsets.diff().tolist()
    pools = zip(*(x[None, None].split(sizes, 2) for x in layer.old[:2]), strict=True)
    parts = [restore_by_specification(store, *pool) for pool in pools]
    keys, values = (torch.cat([x[0, 0] for x in some]) for some in zip(*parts, strict=True))
    layer.old = layer.old._replace(keys=keys, values=values)


@every_system
@every_store
@every_shape
def test_attention_sees_what_the_store_restores_of_what_is_left(system, store, padded):
    model = wide_model()
    cache, ids, mask = read_cache(model, f"{system}>{store}", padded, ratio=0.5)
    # The system without a store evicts the same entries of the prompt without its last token.
    exact = models.compressed(model, system, ids[:, : TOKENS - 1], mask[:, : TOKENS - 1], ratio=0.5)
    for layer in exact.layers:
        restore_layer(store, layer)
    actual, expected = (logits_after(model, held, ids, mask, 7) for held in (cache, exact))
    assert_close(actual[mask[:, -7:].bool()], expected[mask[:, -7:].bool()].double(), 32.0)


@every_store
def test_codes_take_less_than_what_they_code(store):
    ids = torch.randint(2, 60, (1, 600), generator=torch.Generator().manual_seed(0))
    left, codes = (
        models.compressed(wide_model(), name, ids, keep=400)
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
