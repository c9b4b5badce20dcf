"""The self-check of `attach`: which models pass, and why others are refused."""

import pytest
import torch

import reference
from optimized.models.attach import attachment
from spec_tests.accuracy import assert_as_accurate
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.architectures import build
from spec_tests.internal.models.random_model import attached_model, models, new_model

LLAMA = "transformers.models.llama.modeling_llama.eager_attention_forward"
# Queries that are projected, perhaps normed in each head, and then rotated over the whole width.
ROTATED = ("llama", "granite", "gemma2", "qwen3", "qwen2 windowed")
# A part is rotated; neighbours are paired; all heads are normed together; the norm comes after the
# rotation; one projection makes queries, keys and values; there are two rotary embeddings.
OTHERS = ("phi", "cohere", "olmo2", "hunyuan_v1_dense", "phi3", "gemma3_text")


def biased_attention(module, query, key, value, mask, scaling, **_):
    """Return attention with a bias that grows with distance."""
    del module
    tokens = key.shape[2]
    logits = query @ key.repeat_interleave(query.shape[1] // key.shape[1], 1).mT * scaling
    logits = logits + mask + 0.01 * torch.arange(tokens)
    values = value.repeat_interleave(query.shape[1] // key.shape[1], 1)
    return (logits.softmax(-1) @ values).transpose(1, 2), None


def test_a_model_that_computes_something_else_is_refused_and_left_as_it_was(monkeypatch):
    monkeypatch.setattr(LLAMA, biased_attention)
    model = new_model("llama")
    with pytest.raises(ValueError, match=r"by itself, got 'llama', whose attention differs"):
        models.attach(model)
    assert model.config._attn_implementation == "sdpa"
    assert attachment(model) is None
    modules = (model.model, *(layer.self_attn for layer in model.model.layers))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in modules)


@pytest.mark.parametrize("kind", [*ROTATED, *OTHERS, "gpt_oss", "lfm2", "minicpm3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_which_models_rotate_their_projected_queries_as_a_whole_is_found(kind, dtype):
    attached = attachment(models.attach((build if kind in OTHERS else new_model)(kind).to(dtype)))
    assert attached is not None
    assert attached.shown.rotates == (kind in ROTATED)


@pytest.mark.parametrize("kind", ["llama", "granite", "gemma3_text"])
def test_products_of_what_scorers_see_are_the_logits_of_the_layer(kind):
    ids, _ = small.prompts()
    steps, outputs = [], []
    for layer in small.full_attention_layers(kind):
        project = attached_model(kind).model.layers[layer].self_attn.o_proj
        hook = project.register_forward_pre_hook(lambda _, given: outputs.append(given[0]))
        models.prefill(attached_model(kind), ids, watch=[steps.append])
        hook.remove()
        step, output = steps[small.full_attention_layers(kind)[layer]], outputs.pop()
        heads = output.view(*ids.shape, -1, step.values.shape[-1]).transpose(1, 2)
        seen = dict(queries=step.queries, keys=step.keys, values=step.values)
        assert_as_accurate(heads, reference.attention, seen)
        steps.clear()
