"""Multi-head latent attention: latent rows, which all heads share, are scored and evicted."""

from copy import deepcopy

import pytest
import torch

import reference
from spec_tests.accuracy import assert_as_accurate, assert_equal
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import generate, models, prompts, transformers

KIND = "minicpm3"


def attention_of_the_model(ids, mask, model=None):
    """Return queries and expanded keys of each layer and head, from the model's own file."""
    seen = []

    def watch(module, query, key, value, attention_mask, scaling, **options):
        seen.append((query * scaling * key.shape[-1] ** 0.5, key))
        return eager(module, query, key, value, attention_mask, scaling=scaling, **options)

    eager = transformers.AttentionInterface()["sdpa"]
    transformers.AttentionInterface.register("watched", watch)
    transformers.AttentionMaskInterface.register(
        "watched", transformers.AttentionMaskInterface()["sdpa"]
    )
    model = deepcopy(model or small.stock_model(KIND))
    model.set_attn_implementation("watched")
    with torch.no_grad():
        model(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0))
    return seen


def mass(queries, keys, valid):
    """Return the attention mass of each token, summed over heads."""
    return reference.h2o_mass(queries, keys, valid=valid).sum(1, keepdim=True)


def window(queries, keys, valid):
    """Return the mean attention of each token from the last queries, over all heads."""
    return reference.snapkv(queries, keys, 6, 1, valid=valid).scores.mean(1, keepdim=True)


@pytest.mark.parametrize("chunk", [None, 7])
@pytest.mark.parametrize(
    ("name", "settings", "spec"),
    [("h2o", {}, mass), ("snapkv", {"window": 6, "kernel": 1}, window)],
    ids=["h2o", "snapkv"],
)
def test_rows_score_what_the_heads_give_them_together(name, settings, spec, chunk):
    ids, mask = prompts()
    scorer = models.scorer(name, small.attached_model(KIND), **settings)
    prompt = models.prefill(
        small.attached_model(KIND), ids, mask, chunk=chunk, watch=[scorer.watch]
    )
    found = scorer.finish(prompt, 14).scored
    for layer, (queries, keys) in zip(found, attention_of_the_model(ids, mask), strict=True):
        inputs = dict(queries=queries, keys=keys, valid=mask.bool())
        assert layer.scores.shape == (2, 1, small.TOKENS)
        assert_as_accurate(layer.scores, spec, inputs)


def test_a_kept_token_costs_one_row():
    ids, row = prompts(4)[0], 12 + 4  # the latent, and the rotated part of the keys
    for ratio in (0.0, 0.5):
        cache = models.compressed(small.attached_model(KIND), "snapkv", ids, ratio=ratio)
        assert cache.nbytes == 2 * (1 - ratio) * ids.numel() * row * 4


def test_a_copied_or_detached_model_expands_rows_by_itself():
    model, (ids, mask) = models.attach(small.new_model(KIND)), prompts()
    expected = generate(small.stock_model(KIND), ids, mask)
    twin = deepcopy(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
    cache = models.compressed(twin, "full", ids, mask)
    assert_equal(generate(twin, ids, mask, cache), expected)
    models.detach(twin)
    assert_equal(generate(twin, ids, mask), expected)
    assert not any("expand_kv" in vars(layer) for layer in twin.modules())
