"""HEX's cache inside a model: exact where it keeps all entries, small where it compresses."""

import pytest
import torch

import optimized
import reference
from optimized.vector.hex.stacked_cache import StackedCache
from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.internal.models.oracle import assert_logits
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    every_main_architecture,
    generate,
    logits_after,
    models,
    prompts,
    stock_model,
)

SMALL = optimized.HexConfig(density=0.0, block=8, recent=2)
ALL = SMALL._replace(density=1.0)
every_mode = pytest.mark.parametrize("mode", ["append", "full"])


def unpadded_prompts(more: int = 0):
    """Return ids and mask of two prompts of one length."""
    ids, _ = prompts(more)
    return ids, torch.ones_like(ids)


@every_main_architecture
@every_mode
def test_a_mask_of_ones_gives_the_logits_of_the_full_cache(kind, mode):
    ids, mask = unpadded_prompts(14)
    settings = ALL._replace(mode=mode)
    cache = models.HexTransformersCache(attached_model(kind).config, settings)
    logits_after(attached_model(kind), cache, ids[:, :TOKENS], mask[:, :TOKENS], TOKENS)
    actual = logits_after(attached_model(kind), cache, ids, mask, 14)
    assert_logits(actual, kind, ids, mask, 14)


@every_mode
@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
def test_a_mask_of_ones_generates_what_the_full_cache_does(mode, sampled):
    ids, mask = unpadded_prompts()
    how = dict(do_sample=sampled, **(dict(top_k=5) if sampled else {}))
    cache = models.HexTransformersCache(attached_model("llama").config, ALL._replace(mode=mode))
    expected = generate(stock_model("llama"), ids, mask, **how)
    assert_equal(generate(attached_model("llama"), ids, mask, cache, **how), expected)


@every_mode
def test_both_implementations_store_the_same(mode):
    ids, mask = unpadded_prompts(7)
    caches = [
        models.HexTransformersCache(attached_model("llama").config, SMALL._replace(mode=mode), kv)
        for kv in (reference, optimized)
    ]
    texts = [generate(attached_model("llama"), ids, mask, cache) for cache in caches]
    assert_equal(texts[0], texts[1])
    for theirs, mine in zip(*(cache.layers for cache in caches), strict=True):
        assert optimized.stored_bytes(mine.cache) == optimized.stored_bytes(theirs.cache)
        assert isinstance(mine.held, StackedCache)
        assert len(mine.cache.blocks) == (2 if mode == "append" else 1)


def test_a_padded_batch_is_stored_row_by_row():
    ids, mask = prompts(3)
    cache = models.HexTransformersCache(attached_model("llama").config, SMALL)
    assert cache.layers[0].cache is None
    generate(attached_model("llama"), ids, mask, cache)
    for layer in cache.layers:
        assert all(isinstance(row, StackedCache) for row in layer.held)
        assert all(isinstance(row, optimized.HexCache) for row in layer.cache)


def test_steps_are_answered_where_gradients_are_recorded():
    """The prompt was read under `inference_mode`, whose tensors do not support gradients."""
    ids, _ = unpadded_prompts(3)
    settings = SMALL._replace(density=0.25, seed=1, near=True)
    answers = []
    for mode in (torch.inference_mode(), torch.enable_grad()):
        cache = models.HexTransformersCache(attached_model("llama").config, settings)
        with mode:
            read = (
                attached_model("llama")(some, past_key_values=cache).logits
                for some in ids.split([TOKENS, 1, 1, 1], 1)
            )
            *_, last = read
        answers.append(last.detach().clone())
    assert_close(answers[1], answers[0].double(), 32.0)


@every_mode
def test_gradients_flow_through_a_step_that_compresses(mode):
    ids, _ = unpadded_prompts(9)
    settings = SMALL._replace(density=0.25, seed=1, near=True, mode=mode)
    embedded = attached_model("llama").get_input_embeddings()(ids).detach()
    slopes = []
    for kv in (reference, optimized):
        cache = models.HexTransformersCache(attached_model("llama").config, settings, kv)
        read = embedded.clone().requires_grad_()
        logits = [
            attached_model("llama")(inputs_embeds=some, past_key_values=cache).logits
            for some in read.split([TOKENS] + [1] * 9, 1)
        ]
        torch.cat(logits, 1).square().mean().backward()
        assert read.grad is not None
        slopes.append(read.grad)
    assert_close(slopes[1], slopes[0].double(), 32.0)


def test_codes_take_fewer_bytes_and_the_residual_takes_its_own():
    ids, mask = unpadded_prompts(8)
    exact = 2 * 2 * (TOKENS + 8) * 2 * 2 * 8 * 4
    for settings, share in ((SMALL._replace(recent=0, heavy=0.0), 0.5), (ALL, 1.5)):
        cache = models.HexTransformersCache(attached_model("llama").config, settings)
        logits_after(attached_model("llama"), cache, ids, mask, TOKENS + 8)
        assert cache.nbytes == optimized.stored_bytes([layer.held for layer in cache.layers])
        assert cache.nbytes < share * exact
        assert cache.get_seq_length() == TOKENS + 8


def test_a_prompt_in_chunks_is_compressed_by_the_scorer_that_watched_it():
    ids, mask = unpadded_prompts()
    model = attached_model("llama")
    mass = models.scorer("h2o", model, recent=0)
    prompt = models.prefill(model, ids, mask, chunk=7, watch=[mass.watch])
    scored = mass.finish(prompt, TOKENS).scored
    chunked = models.HexTransformersCache.of_prompt(prompt, scored, optimized.compress, SMALL)
    at_once = models.HexTransformersCache(model.config, SMALL)
    logits_after(model, at_once, ids, mask, TOKENS)
    for mine, other in zip(chunked.layers, at_once.layers, strict=True):
        assert_equal(mine.held.blocks[0].dynamic, other.held.blocks[0].dynamic)
    more, mask = unpadded_prompts(3)
    assert_equal(generate(model, more, mask, chunked), generate(model, more, mask, at_once))


@pytest.mark.parametrize("compressor", ["compress", "hubkv_compress", "graphkv_compress"])
def test_refined_scores_name_the_tokens_that_hex_keeps(compressor):
    ids, mask = unpadded_prompts(3)
    model = attached_model("llama")
    scorer = models.scorer("h2o", model, recent=0)
    prompt = models.prefill(model, ids[:, :TOKENS], watch=[scorer.watch])
    scored = scorer.finish(prompt, TOKENS).scored
    settings, how = SMALL._replace(recent=0), dict(ratio=0.75, refinement=optimized.HubSettings())
    how |= dict(sinks=2, recent=0) if compressor == "hubkv_compress" else {}
    how |= dict(refinement=optimized.GraphSettings(4)) if compressor == "graphkv_compress" else {}
    chosen = getattr(optimized, compressor)
    cache = models.HexTransformersCache.of_prompt(prompt, scored, chosen, settings, **how)
    kept = [layer.held.blocks[0].dynamic for layer in cache.layers]
    count = TOKENS // 4 + (2 if compressor == "hubkv_compress" else 0)
    assert all((one.sum(-1) == count).all() for one in kept)
    text = generate(model, ids, mask, cache)
    assert text.shape[1] == ids.shape[1] + 8
    assert cache.get_seq_length() == text.shape[1] - 1


def test_settings_are_refused_where_they_are_given():
    config = attached_model("llama").config
    with pytest.raises(ValueError, match=r"settings\.bits must be in \[1, 8\], got 9"):
        models.HexTransformersCache(config, SMALL._replace(bits=9))
    with pytest.raises(TypeError, match="settings must be a HexConfig, got 3"):
        models.HexTransformersCache(config, 3)
