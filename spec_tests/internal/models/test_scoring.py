"""Scorers on a model return what their functions return on the model's own tensors."""

from typing import Any

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_as_accurate, assert_equal, assert_near
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import TOKENS, attached_model, gates, models, prompts

KEEP = 14
NEVER = optimized.DecodingConfig(1000, 4, "head")

SETTINGS: dict[str, dict] = {name: {} for name in models.SCORERS} | {
    "streaming_llm": {"sinks": 2},
    "knorm": {"shift": True},
    "snapkv": {"window": 6, "kernel": 3},
    "pyramidkv": {"window": 6, "beta": 2},
    "cake": {"window": 6},
    "expected_attention": {"future": 8},
    "kvzip": {"chunk": 9, "prompt": [5, 6]},
    "fastkvzip": {"weights": gates(optimized)},
}


def score_prompts(name: str, chunk: int | None = None, row: int | None = None):
    """Return a scorer's scores of the prompts, or of one row without its padding."""
    ids, mask = prompts()
    if row is not None:
        ids, mask = (x[row : row + 1, mask[row].bool()] for x in (ids, mask))
    scorer = models.scorer(name, attached_model("llama"), **SETTINGS[name])
    prompt = models.prefill(attached_model("llama"), ids, mask, chunk=chunk, watch=[scorer.watch])
    return scorer.finish(prompt, KEEP), prompt


def kept_sets(scores, valid):
    """Return the masks that half of the budget keeps in each layer."""
    hidden = torch.zeros_like(scores.scored[0].protected) if valid is None else ~valid[:, None]
    return [
        reference.retain(layer.scores.masked_fill(hidden, -torch.inf), layer.protected, keep=KEEP)
        for layer in scores.scored
    ]


@pytest.mark.parametrize("name", [name for name in models.SCORERS if name != "random"])
def test_a_padded_row_read_in_chunks_keeps_what_it_keeps_alone_at_once(name):
    together, prompt = score_prompts(name, chunk=7)
    assert not any(layer.scores[1, :, : small.PADDING].any() for layer in together.scored)
    for row, start in ((0, 0), (1, small.PADDING)):
        alone, _ = score_prompts(name, row=row)
        mine = [kept[row : row + 1, :, start:] for kept in kept_sets(together, prompt.valid)]
        assert_equal(mine, kept_sets(alone, None))


@pytest.mark.parametrize("exact", [False, True])
def test_layers_share_the_budget_as_the_specification_says(exact):
    model, (ids, mask), steps = attached_model("llama"), prompts(), []
    scorer = models.scorer("cake", model, window=6, exact=exact)
    prompt = models.prefill(model, ids, mask, watch=[scorer.watch, steps.append])
    wishes = [
        reference.cake_preference(step.queries, step.keys, 6, valid=step.valid) for step in steps
    ]
    expected = reference.cake_budgets(torch.stack(wishes), KEEP, mask.sum(-1), 6, exact=exact)
    assert_equal(scorer.finish(prompt, KEEP).budgets, expected)
    how: dict[str, Any] = dict(window=6, beta=2, exact=exact)
    scorer = models.scorer("pyramidkv", model, **how)
    prompt = models.prefill(model, ids, mask, watch=[scorer.watch])
    expected = reference.pyramidkv_budgets(18, 2, mask.sum(-1), **how)
    assert_equal(scorer.finish(prompt, 18).budgets, expected)


@pytest.mark.parametrize("name", models.SCORERS)
@pytest.mark.parametrize("chunk", [None, 7])
def test_a_scorer_knows_nothing_of_the_prompt_before(name, chunk):
    model, (ids, _) = attached_model("llama"), prompts()
    used, new = (models.scorer(name, model, **SETTINGS[name]) for _ in range(2))
    used.finish(models.prefill(model, ids.flip(1), watch=[used.watch]), KEEP)
    prompt = models.prefill(model, ids, chunk=chunk, watch=[used.watch, new.watch])
    assert_equal(used.finish(prompt, KEEP), new.finish(prompt, KEEP))


@pytest.mark.parametrize("kind", ["qk", "qq"])
@pytest.mark.parametrize("chunk", [None, 7])
def test_graphkv_compares_the_queries_of_all_tokens(kind, chunk):
    model, (ids, mask), steps = attached_model("llama"), prompts(), []
    settings = optimized.GraphSettings(4, kind, adaptive=False, per_head=True)
    how = dict(refined=settings, settings={"window": 8}, chunk=chunk)
    cache = models.compressed(model, "snapkv", ids, mask, keep=12, **how)
    scorer = models.scorer("snapkv", model, window=8)
    read = models.prefill(model, ids, mask, watch=[scorer.watch, steps.append])
    scores = scorer.finish(read, 12)
    for layer, step, scored in zip(cache.layers, steps, scores.scored, strict=True):
        inputs: dict[str, Any] = dict(keep=12, queries=step.queries, valid=mask.bool())
        kept = reference.select(step.keys, step.values, scored, refinement=settings, **inputs)
        assert_near(layer.keys, step.keys[kept].view_as(layer.keys))


def test_kvzip_hears_the_model_repeat_what_it_read():
    ids, _ = prompts()
    request, chunk, model = torch.tensor([[5, 6]]).expand(2, 2), 9, attached_model("llama")
    scores, _ = score_prompts("kvzip", row=0)
    for index in range(3):
        text, steps = ids[:, 4 + index * chunk :][:, :chunk], []
        models.prefill(model, torch.cat([ids, request, text], 1), watch=[steps.append])
        for step, scored in zip(steps, scores.scored, strict=True):
            repeated, context = step.keys[:1, :, TOKENS:], step.keys[:1, :, :TOKENS]
            expected = reference.kvzip_chunk(
                step.queries[:1, :, TOKENS:], context, repeated, index, chunk
            )
            chunk_tokens = slice(4 + index * chunk, 4 + (index + 1) * chunk)
            mine = scored.scores[..., chunk_tokens].argsort(-1)
            assert_equal(mine, expected[..., chunk_tokens].argsort(-1))


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
def test_heavy_hitters_gather_the_mass_of_every_query_so_far(kind):
    ids, mask = prompts(3)
    model, steps = attached_model(kind), []
    cache = models.DecodingTransformersCache(model.config, NEVER, "h2o")
    models.prefill(model, ids, mask, watch=[steps.append])
    small.logits_after(model, cache, ids[:, :TOKENS], mask[:, :TOKENS], TOKENS)
    small.logits_after(model, cache, ids, mask, 3)
    layers = [layer for layer in cache.layers if not layer.is_sliding]
    for layer, step in zip(layers, steps, strict=True):
        drawn = optimized.decoding_read(layer.held).scores
        seen = dict(queries=step.queries, keys=step.keys, valid=step.valid)
        assert_as_accurate(drawn, reference.h2o_mass, seen)


def mass_behind_the_prompt(queries, keys):
    """Return the attention mass of the tokens behind the prompt, over all heads."""
    return reference.h2o_mass(queries, keys).sum(1)[..., TOKENS:]


@pytest.mark.parametrize("kind", ["llama", "granite", "gemma2"])
def test_hex_gathers_the_mass_of_every_query_so_far(kind):
    (ids, _), model, steps = prompts(3), attached_model(kind), []
    every = torch.ones_like(ids)
    settings = optimized.HexConfig(density=1.0, block=8, recent=2)  # three blocks, all exact
    cache = models.HexTransformersCache(model.config, settings)
    models.prefill(model, ids, watch=[steps.append])
    small.logits_after(model, cache, ids[:, :TOKENS], every[:, :TOKENS], TOKENS)
    small.logits_after(model, cache, ids, every, 3)
    layers = [layer for layer in cache.layers if not layer.is_sliding]
    for layer, step in zip(layers, steps, strict=True):
        seen = dict(queries=step.queries, keys=step.keys)
        assert_as_accurate(layer.cache.residual_mass, mass_behind_the_prompt, seen)


@pytest.mark.parametrize("name", ["fastkvzip", "knorm"])
def test_what_arrives_while_decoding_is_scored_as_in_a_prompt(name):
    ids, mask = prompts(2)
    model = attached_model("llama")
    cache = models.DecodingTransformersCache(model.config, NEVER, name, gates(optimized))
    settings = {"weights": gates(optimized)} if name == "fastkvzip" else {}
    scorer = models.scorer(name, model, **settings)
    prompt = models.prefill(model, ids, mask, watch=[scorer.watch])
    small.logits_after(model, cache, ids[:, :TOKENS], mask[:, :TOKENS], TOKENS)
    small.logits_after(model, cache, ids, mask, 2)
    for layer, scored in zip(cache.layers, scorer.finish(prompt, 9).scored, strict=True):
        drawn = optimized.decoding_read(layer.held).scores
        assert_equal(drawn.argsort(-1)[0], scored.scores.argsort(-1)[0])
        assert layer.hidden is None


def test_the_first_and_the_last_tokens_are_held_while_decoding():
    (ids, mask), model = prompts(9), attached_model("llama")
    cache = models.compressed(model, "streaming_llm", ids[:, :TOKENS], keep=10, interval=4)
    small.logits_after(model, cache, ids, torch.ones_like(mask), 10)
    for layer in cache.layers:
        view = optimized.decoding_read(layer.held)
        for positions, present in zip(view.positions[0], view.present[0], strict=True):
            first, last = positions[present].sort().values.tensor_split([4])
            assert first.tolist() == [0, 1, 2, 3]
            assert last.tolist() == [*range(TOKENS + 9 - len(last), TOKENS + 9)]


@pytest.mark.parametrize(
    ("score", "options", "says"),
    [
        ("expected_attention", {}, r"frequencies with score .*, got \[\]: .*of_model"),
        ("snapkv", dict(windows=3), "windows"),
        ("h2o", dict(window=3), "must be left out, got window"),
    ],
)
def test_options_of_a_cache_are_those_of_its_score(score, options, says):
    with pytest.raises(ValueError, match=says):
        models.DecodingTransformersCache(
            attached_model("llama").config, NEVER, score, options=options
        )
