"""A copy of a cache goes on by itself, as `transformers` recommends for a prompt used twice."""

from copy import deepcopy

import pytest
import torch

import optimized
from spec_tests.accuracy import assert_equal
from spec_tests.models.random_model import attached, generated, models, prompts

HEX = optimized.HexConfig(density=0.0, block=8, recent=2)
DECODING = optimized.DecodingConfig(10, 4, "layer")
CACHES = {
    "eviction": lambda config: models.EvictionCache(config),
    "hex": lambda config: models.HexTransformersCache(config, HEX),
    "decoding": lambda config: models.DecodingTransformersCache(config, DECODING),
}


@pytest.mark.parametrize("name", CACHES)
def test_a_copy_goes_on_by_itself(name):
    model, (ids, _) = attached("llama"), prompts(4)
    every = torch.ones_like(ids)
    cache = CACHES[name](model.config)
    with torch.no_grad():
        model(input_ids=ids[:, :-4], past_key_values=cache)
    copied, nbytes = deepcopy(cache), cache.nbytes
    assert copied.nbytes == nbytes
    first = generated(model, ids, every, copied)
    assert (cache.nbytes, cache.get_seq_length()) == (nbytes, ids.shape[1] - 4)
    assert_equal(generated(model, ids, every, cache), first)
