"""A copied or saved cache is independent of the original."""

from copy import copy, deepcopy
from io import BytesIO

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import attached_model, generate, models, prompts

HEX = optimized.HexConfig(density=0.0, block=8, recent=2)
DECODING = optimized.DecodingConfig(10, 4, "layer")
CACHES = {
    "hex": lambda config: models.HexTransformersCache(config, HEX),
    "decoding": lambda config: models.DecodingTransformersCache(config, DECODING),
}


def filled_cache(name: str, ids: torch.Tensor):
    """Return a cache that has read a prompt, after eviction where the cache evicts."""
    if name == "eviction":
        cache = models.prefill(attached_model("llama"), ids).cache
        cache.evict(torch.arange(2 * 2 * 2 * ids.shape[1]).view(2, 2, 2, -1) % 3 > 0)
        return cache
    cache = CACHES[name](attached_model("llama").config)
    with torch.no_grad():
        attached_model("llama")(input_ids=ids, past_key_values=cache)
    return cache


every_cache = pytest.mark.parametrize("name", ["eviction", *CACHES])


@every_cache
@pytest.mark.parametrize("how", [copy, deepcopy], ids=["copy", "deepcopy"])
def test_a_copy_goes_on_by_itself(name, how):
    model, (ids, _) = attached_model("llama"), prompts(4)
    every, cache = torch.ones_like(ids), filled_cache(name, ids[:, :-4])
    copied, nbytes = how(cache), cache.nbytes
    assert copied.nbytes == nbytes
    first = generate(model, ids, every, copied)
    assert (cache.nbytes, cache.get_seq_length()) == (nbytes, ids.shape[1] - 4)
    assert_equal(generate(model, ids, every, cache), first)


@every_cache
@pytest.mark.parametrize("kv", [reference, optimized], ids=["reference", "optimized"])
def test_a_saved_cache_goes_on_where_it_was(name, kv):
    model, (ids, _) = attached_model("llama"), prompts(4)
    every, cache, file = torch.ones_like(ids), filled_cache(name, ids[:, :-4]), BytesIO()
    for layer in cache.layers:
        vars(layer)["kv"] = kv
    torch.save(cache, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    assert loaded.nbytes == cache.nbytes
    assert all(layer.kv is kv for layer in loaded.layers)
    assert_equal(generate(model, ids, every, loaded), generate(model, ids, every, cache))
