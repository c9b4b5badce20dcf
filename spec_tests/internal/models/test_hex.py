"""HEX's cache inside a model: gradients, and heavy hitters that other scores name."""

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_close
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    generate,
    models,
    prompts,
)

SMALL = optimized.HexConfig(density=0.0, block=8, recent=2)
every_mode = pytest.mark.parametrize("mode", ["append", "full"])


def test_steps_are_answered_where_gradients_are_recorded():
    """The prompt was read under `inference_mode`, whose tensors do not support gradients."""
    ids, _ = prompts(3)
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
    ids, _ = prompts(9)
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
    kept = [layer.held.blocks[0].dynamic for layer in cache.layers]
    count = TOKENS // 4 + (2 if compressor == "hubkv_compress" else 0)
    assert all((one.sum(-1) == count).all() for one in kept)
    text = generate(model, ids, torch.ones_like(ids), cache)
    assert text.shape[1] == ids.shape[1] + 8
    assert cache.get_seq_length() == text.shape[1] - 1
