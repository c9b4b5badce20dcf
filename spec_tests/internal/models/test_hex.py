"""HEX's cache inside a model: gradients, and heavy hitters that other scores name."""

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_close
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    models,
    prompts,
)

SMALL = optimized.HexConfig(density=0.0, block=8, recent=2)


@pytest.mark.parametrize("mode", ["append", "full"])
def test_gradients_flow_through_a_step_that_compresses(mode):
    """The prompt was read under `inference_mode`, whose tensors do not support gradients."""
    ids, model = prompts(9)[0], attached_model("llama")
    settings = SMALL._replace(density=0.25, seed=1, near=True, mode=mode)
    embedded = model.get_input_embeddings()(ids[:, TOKENS:]).detach()
    slopes = []
    for kv in (reference, optimized):
        cache = models.HexTransformersCache(model.config, settings, kv)
        with torch.inference_mode():
            model(ids[:, :TOKENS], past_key_values=cache)
        read = embedded.clone().requires_grad_()
        steps = (model(inputs_embeds=token, past_key_values=cache) for token in read.split(1, 1))
        torch.cat([step.logits for step in steps], 1).square().mean().backward()
        assert read.grad is not None
        slopes.append(read.grad)
    assert_close(slopes[1], slopes[0].double(), 32.0)


@pytest.mark.parametrize("compressor", ["compress", "hubkv_compress", "graphkv_compress"])
def test_refined_scores_name_the_tokens_that_hex_keeps(compressor):
    ids, model = prompts(3)[0], attached_model("llama")
    scorer = models.scorer("h2o", model, recent=0)
    prompt = models.prefill(model, ids[:, :TOKENS], watch=[scorer.watch])
    scored = scorer.finish(prompt, TOKENS).scored
    settings, how = SMALL._replace(recent=0), dict(ratio=0.75, refinement=optimized.HubSettings())
    how |= dict(sinks=2, recent=0) if compressor == "hubkv_compress" else {}
    how |= dict(refinement=optimized.GraphSettings(4)) if compressor == "graphkv_compress" else {}
    chosen = getattr(optimized, compressor)
    cache = models.HexTransformersCache.of_prompt(prompt, scored, chosen, settings, **how)
    kept = [stored.held.blocks[0].dynamic for stored in cache.layers]
    count = TOKENS // 4 + (2 if compressor == "hubkv_compress" else 0)
    assert all((layer.sum(-1) == count).all() for layer in kept)
