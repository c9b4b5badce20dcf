"""The self-check of `attach`: which models pass, and why others are refused."""

import pytest
import torch

import reference
from optimized.models import self_check
from optimized.models.attach import attachment
from spec_tests.accuracy import assert_as_accurate, assert_close
from spec_tests.internal.models.architectures import build
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    count_keyed_layers,
    full_attention_layers,
    models,
    new_model,
    prompts,
)

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
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in modules)


@pytest.mark.parametrize("name", ["softmax_of", "dense_attention"])
def test_a_slip_of_ours_is_found_in_a_model_that_shows_it(monkeypatch, name):
    ours = getattr(self_check, name)

    def bare(*given, **_):
        return ours(*given[:1])

    def blind(query, key, value, valid, way):
        del valid
        return ours(query, key, value, None, way)

    monkeypatch.setattr(self_check, name, bare if name == "softmax_of" else blind)
    with pytest.raises(ValueError, match=r"got 'gemma2', whose attention differs by"):
        models.attach(new_model("gemma2"))


@pytest.mark.parametrize("kind", [*ROTATED, *OTHERS, "gpt_oss", "lfm2", "minicpm3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_which_models_rotate_their_projected_queries_as_a_whole_is_found(kind, dtype):
    known = attachment(models.attach((build if kind in OTHERS else new_model)(kind).to(dtype)))
    assert known is not None
    assert known.shown.rotates == (kind in ROTATED)


@pytest.mark.parametrize("kind", ROTATED)
def test_unrotated_queries_turn_into_the_queries_of_the_model(kind):
    ids, _ = prompts()
    steps = []
    models.prefill(attached_model(kind), ids, watch=[steps.append])
    frequencies = attached_model(kind).get_decoder().rotary_emb.inv_freq
    assert len(steps) == count_keyed_layers(kind)
    for step in steps:
        raw = models.unrotated(step)
        for at in (0, 1, TOKENS - 1):
            turn = reference.mean_rotation(frequencies, at, 1)
            turned = (turn @ raw[:, :, at, :, None])[..., 0]
            # Rounding errors of angles grow with the position.
            largest = (1 + at) * raw[:, :, at].abs().max()
            assert_close(step.queries[:, :, at], turned, largest)


@pytest.mark.parametrize("kind", ["llama", "granite", "gemma3_text"])
def test_products_of_what_scorers_see_are_the_logits_of_the_layer(kind):
    ids, _ = prompts()
    steps, outputs = [], []
    for place in full_attention_layers(kind):
        project = attached_model(kind).model.layers[place].self_attn.o_proj
        hook = project.register_forward_pre_hook(lambda _, given: outputs.append(given[0]))
        models.prefill(attached_model(kind), ids, watch=[steps.append])
        hook.remove()
        step, output = steps[full_attention_layers(kind)[place]], outputs.pop()
        heads = output.view(*ids.shape, -1, step.values.shape[-1]).transpose(1, 2)
        seen = dict(queries=step.queries, keys=step.keys, values=step.values)
        assert_as_accurate(heads, reference.attention, seen)
        steps.clear()
