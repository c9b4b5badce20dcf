"""A cache that shrinks while the model decodes."""

import pytest

import optimized
import reference
from spec_tests.accuracy import assert_as_accurate, assert_equal
from spec_tests.internal.models.oracle import assert_logits
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    gates,
    generate,
    logits_after,
    models,
    prompts,
    stock_model,
)

every_score = pytest.mark.parametrize("score", ["h2o", "knorm", "streaming_llm"])


def decoding_cache(target: int, score: str, kv=optimized, **settings):
    """Return a decoding cache for the attached model."""
    config = optimized.DecodingConfig(target, 4, "head")._replace(**settings)
    return models.DecodingTransformersCache(attached_model("llama").config, config, score, kv=kv)


@every_score
def test_a_target_that_is_never_reached_changes_nothing(score):
    ids, mask = prompts(9)
    cache = decoding_cache(1000, score)
    logits_after(attached_model("llama"), cache, ids[:, :TOKENS], mask[:, :TOKENS], TOKENS)
    actual = logits_after(attached_model("llama"), cache, ids, mask, 9)
    assert_logits(actual, "llama", ids, mask, 9)
    expected = generate(stock_model("llama"), ids, mask)
    assert_equal(
        generate(attached_model("llama"), ids, mask, decoding_cache(1000, score)), expected
    )


@every_score
@pytest.mark.parametrize("scope", ["head", "layer"])
def test_both_implementations_hold_the_same_entries(score, scope):
    ids, mask = prompts()
    caches = [decoding_cache(10, score, kv, scope=scope) for kv in (reference, optimized)]
    texts = [generate(attached_model("llama"), ids, mask, cache) for cache in caches]
    assert_equal(texts[0], texts[1])
    for mine, other in zip(*(cache.layers for cache in caches), strict=True):
        assert_equal(mine.held.stored.positions, other.held.stored.positions)


@every_score
def test_no_head_holds_more_than_target_and_interval(score):
    ids, mask = prompts()
    cache = decoding_cache(10, score)
    generate(attached_model("llama"), ids, mask, cache)
    for layer in cache.layers:
        assert optimized.decoding_read(layer.held).present.sum(-1).max() < 10 + 4
    assert cache.get_seq_length() == TOKENS + 7


def test_heavy_hitters_gather_the_mass_of_every_query_so_far():
    ids, mask = prompts(3)
    model, cache, steps = attached_model("llama"), decoding_cache(1000, "h2o"), []
    models.prefill(model, ids, mask, watch=[steps.append])
    logits_after(model, cache, ids[:, :TOKENS], mask[:, :TOKENS], TOKENS)
    logits_after(model, cache, ids, mask, 3)
    for layer, step in zip(cache.layers, steps, strict=True):
        drawn = optimized.decoding_read(layer.held).scores
        seen = dict(queries=step.queries, keys=step.keys, valid=step.valid)
        assert_as_accurate(drawn, reference.h2o_mass, seen)


def test_a_scope_over_all_layers_is_refused():
    with pytest.raises(
        ValueError,
        match=r"settings.scope must be 'head' or 'layer', since.* got 'model', the default",
    ):
        decoding_cache(10, "h2o", scope="model")


def test_a_gate_scores_the_hidden_states_of_every_call():
    ids, mask = prompts(2)
    model = attached_model("llama")
    settings = optimized.DecodingConfig(1000, 4, "head")
    cache = models.DecodingTransformersCache(model.config, settings, "fastkvzip", gates(optimized))
    scorer = models.scorer("fastkvzip", model, weights=gates(optimized))
    prompt = models.prefill(model, ids, mask, watch=[scorer.watch])
    logits_after(model, cache, ids[:, :TOKENS], mask[:, :TOKENS], TOKENS)
    logits_after(model, cache, ids, mask, 2)
    for layer, one in zip(cache.layers, scorer.finish(prompt, 9).scored, strict=True):
        drawn = optimized.decoding_read(layer.held).scores
        assert_equal(drawn.argsort(-1)[0], one.scores.argsort(-1)[0])
        assert layer.hidden is None


@pytest.mark.parametrize(
    ("settings", "score", "said"),
    [
        (optimized.DecodingConfig(0), "h2o", r"settings\.\w+ must be .*target=0"),
        (optimized.DecodingConfig(9, 0), "h2o", r"settings\.interval must be >= 1, got 0"),
        (
            optimized.DecodingConfig(9, scope="head", refinement=optimized.HubSettings()),
            "knorm",
            "must be None with score 'knorm', whose scores are negative, got HubSettings",
        ),
    ],
)
def test_settings_that_no_call_can_use_are_refused_before_any(settings, score, said):
    with pytest.raises(ValueError, match=said):
        models.DecodingTransformersCache(attached_model("llama").config, settings, score)
