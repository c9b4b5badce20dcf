"""Scorers on a model return what their functions return on the model's own tensors."""

from typing import Any

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_as_accurate, assert_equal
from spec_tests.internal.models.random_model import (
    PADDING,
    TOKENS,
    attached_model,
    every_main_architecture,
    gates,
    models,
    prompts,
)

KEEP = 14


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
every_scorer = pytest.mark.parametrize("name", models.SCORERS)
told_of_a_model = pytest.mark.parametrize("name", [n for n in models.SCORERS if n != "random"])


def score_prompts(
    name: str, kind: str, kv=optimized, chunk: int | None = None, row: int | None = None
):
    """Return a scorer's scores of the prompts, or of one row without its padding."""
    ids, mask = prompts()
    if row is not None:
        ids, mask = (x[row : row + 1][:, mask[row].bool()] for x in (ids, mask))
    scorer = models.scorer(name, attached_model(kind), kv, **SETTINGS[name])
    prompt = models.prefill(attached_model(kind), ids, mask, chunk=chunk, watch=[scorer.watch])
    return scorer.finish(prompt, KEEP), prompt


def kept_sets(scores, valid=None, start: int = 0):
    """Return the masks that half of the budget keeps in each layer."""
    real = torch.ones(1, TOKENS - start, dtype=torch.bool) if valid is None else valid[:, start:]
    sets = []
    for one in scores.scored:
        ranked = one.scores[..., start:].masked_fill(~real[:, None], -torch.inf)
        sets.append(reference.retain(ranked, one.protected[..., start:], keep=KEEP))
    return sets


def test_settings_are_of_scorers():
    assert set(SETTINGS) == set(models.SCORERS)


@every_scorer
@every_main_architecture
def test_a_prompt_in_chunks_keeps_the_sets_of_the_whole(name, kind):
    whole, prompt = score_prompts(name, kind)
    chunked, _ = score_prompts(name, kind, chunk=7)
    assert_equal(kept_sets(chunked, prompt.valid), kept_sets(whole, prompt.valid))
    assert_equal(chunked.budgets, whole.budgets)


@told_of_a_model
def test_both_implementations_keep_the_same_sets(name):
    mine, prompt = score_prompts(name, "llama", optimized)
    other, _ = score_prompts(name, "llama", reference)
    assert_equal(kept_sets(mine, prompt.valid), kept_sets(other, prompt.valid))
    assert_equal(mine.budgets, other.budgets)


@told_of_a_model
def test_a_padded_row_keeps_what_it_keeps_alone(name):
    together, _ = score_prompts(name, "llama")
    for row, start in ((0, 0), (1, PADDING)):
        alone, _ = score_prompts(name, "llama", row=row)
        mine = [one[row : row + 1] for one in kept_sets(together, start=start)]
        assert_equal(mine, kept_sets(alone, torch.ones(1, TOKENS - start, dtype=torch.bool)))


@every_scorer
def test_padding_scores_0_and_is_not_protected(name):
    scores, _ = score_prompts(name, "llama")
    for one in scores.scored:
        assert not one.scores[1, :, :PADDING].any()
        assert not one.protected[1, :, :PADDING].any()


@every_scorer
def test_scoring_leaves_the_cache_as_it_was(name):
    _, prompt = score_prompts(name, "llama")
    untouched = models.prefill(attached_model("llama"), *prompts()).cache
    assert prompt.cache.get_seq_length() == TOKENS
    for mine, other in zip(prompt.cache.evictable(), untouched.evictable(), strict=True):
        assert_equal(mine.whole, other.whole)


@every_scorer
@pytest.mark.parametrize("chunk", [None, 7])
def test_a_scorer_knows_nothing_of_the_prompt_before(name, chunk):
    model, (ids, _) = attached_model("llama"), prompts()
    used, new = (models.scorer(name, model, **SETTINGS[name]) for _ in range(2))
    used.finish(models.prefill(model, ids.flip(1), watch=[used.watch]), KEEP)
    prompt = models.prefill(model, ids, chunk=chunk, watch=[used.watch, new.watch])
    assert_equal(used.finish(prompt, KEEP), new.finish(prompt, KEEP))


def pieces(step, size: int):
    """Yield the steps of a prompt in chunks, cut from one step of the whole prompt."""
    for start in range(0, TOKENS, size):
        stop = min(TOKENS, start + size)
        yield step._replace(
            queries=step.queries[:, :, start:stop],
            keys=step.keys[:, :, :stop],
            values=step.values[:, :, :stop],
            valid=step.valid[:, :stop],
            hidden=step.hidden[:, start:stop],
        )


def snapkv_scores(queries, keys, valid):
    """Return SnapKV's scores."""
    return reference.snapkv(queries, keys, 6, 3, valid=valid).scores


def cake_scores(queries, keys, valid):
    """Return CAKE's scores."""
    return reference.cake(queries, keys, 6, valid=valid).scores


snapkv_scores.__name__, cake_scores.__name__ = "snapkv", "cake"


@pytest.mark.parametrize(
    ("name", "spec"),
    [("h2o", reference.h2o_mass), ("snapkv", snapkv_scores), ("cake", cake_scores)],
    ids=["h2o", "snapkv", "cake"],
)
def test_what_was_watched_in_chunks_scores_as_the_specification_says(name, spec):
    steps = []
    prompt = models.prefill(attached_model("llama"), *prompts(), watch=[steps.append])
    scorer = models.scorer(name, attached_model("llama"), **SETTINGS[name])
    for step in steps:
        for piece in pieces(step, 5):
            scorer.watch(piece)
    for step, one in zip(steps, scorer.finish(prompt, KEEP).scored, strict=True):
        inputs = dict(queries=step.queries, keys=step.keys, valid=step.valid)
        assert_as_accurate(one.scores, spec, inputs)


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
        more: dict[str, Any] = dict(keep=12, queries=step.queries, valid=mask.bool())
        kept = reference.select(step.keys, step.values, scored, refinement=settings, **more)
        assert torch.allclose(layer.keys, step.keys[kept].view_as(layer.keys), atol=1e-4)


def test_kvzip_hears_the_model_repeat_what_it_read():
    ids, _ = prompts()
    asked, chunk, model = torch.tensor([[5, 6]]).expand(2, 2), 9, attached_model("llama")
    scores, _ = score_prompts("kvzip", "llama", row=0)
    for index in range(3):
        text, steps = ids[:, 4 + index * chunk :][:, :chunk], []
        models.prefill(model, torch.cat([ids, asked, text], 1), watch=[steps.append])
        for step, one in zip(steps, scores.scored, strict=True):
            repeated, context = step.keys[:1, :, TOKENS:], step.keys[:1, :, :TOKENS]
            expected = reference.kvzip_chunk(
                step.queries[:1, :, TOKENS:], context, repeated, index, chunk
            )
            here = slice(4 + index * chunk, 4 + (index + 1) * chunk)
            mine = one.scores[..., here].argsort(-1)
            assert_equal(mine, expected[..., here].argsort(-1))
