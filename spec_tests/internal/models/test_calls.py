"""Ways to call a model over a cache: what a call leaves out, refuses, or breaks off."""

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import (
    TOKENS,
    VOCABULARY,
    attached_model,
    generate,
    logits_after,
    models,
    new_model,
    prompts,
    read,
    transformers,
)
from spec_tests.internal.models.test_laws import HEX

CONFIG = attached_model("llama").config
CALLS = {
    "by position": lambda model, ids, mask, cache: model(ids, mask, None, cache),
    "without positions and mask": lambda model, ids, _, cache: model(ids, past_key_values=cache),
    "embeddings": lambda model, ids, mask, cache: model(
        inputs_embeds=model.get_input_embeddings()(ids), attention_mask=mask, past_key_values=cache
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_finds_what_it_is_not_told(call):
    prompt, ids, mask = read(more=3)
    prompt.cache.evict(torch.rand(2, 2, 2, TOKENS).gt(0.5) & prompt.valid[:, None])
    model, new = attached_model("llama"), ids[:, TOKENS:]
    with prompt.cache.undone():
        expected = logits_after(model, prompt.cache, ids, mask, 3)
    with torch.no_grad():
        assert_equal(CALLS[call](model, new, mask, prompt.cache).logits, expected)


ROPES = {
    "dynamic": (64, dict(rope_type="dynamic", factor=4.0)),
    "longrope": (
        256,
        dict(
            rope_type="longrope",
            factor=4.0,
            short_factor=[1.0] * 4,
            long_factor=[1.0, 2.0, 4.0, 8.0],
            original_max_position_embeddings=64,
        ),
    ),
}
every_rope = pytest.mark.parametrize("rope", ROPES)


def rotating_model(rope: str):
    """Return a model whose rotary embedding changes beyond 64 tokens, and 100 ids."""
    longest, settings = ROPES[rope]
    more = dict(max_position_embeddings=longest, rope_parameters=dict(rope_theta=1e4, **settings))
    model = models.attach(new_model("llama", **more))
    draw = torch.Generator().manual_seed(2)
    return model, torch.randint(2, VOCABULARY, (1, 100), generator=draw)


@every_rope
def test_a_rotation_that_changes_between_two_calls_is_refused(rope):
    model, ids = rotating_model(rope)
    assert torch.isfinite(models.prefill(model, ids).logits).all()
    with pytest.raises(ValueError, match=f"'{rope}' whose angles change beyond 64 .* with 60"):
        models.prefill(model, ids, chunk=30)
    assert_equal(models.prefill(model, ids[:, :64], chunk=64).cache.get_seq_length(), 64)
    scorer = models.scorer("kvzip", model, chunk=40)  # which repeats what it read
    scorer.finish(models.prefill(model, ids[:, :30]), 9)
    with pytest.raises(ValueError, match=f"'{rope}' whose angles change beyond 64 tokens, with 40"):
        scorer.finish(models.prefill(model, ids[:, :40]), 9)


def test_what_was_read_at_once_beyond_the_length_goes_on_where_angles_stay():
    model, ids = rotating_model("longrope")
    cache = models.prefill(model, ids[:, :90]).cache
    growing = transformers.DynamicCache()
    with torch.no_grad():
        model(input_ids=ids[:, :90], past_key_values=growing)
        actual, expected = (
            model(input_ids=ids[:, 90:], past_key_values=held).logits for held in (cache, growing)
        )
    assert_equal(actual, expected)
    model, ids = rotating_model("dynamic")
    cache = models.prefill(model, ids[:, :90]).cache
    with pytest.raises(ValueError, match="'dynamic' whose angles change beyond 64"):
        model(input_ids=ids[:, 90:], past_key_values=cache)


def test_a_call_that_is_refused_leaves_the_cache_as_it_was():
    ids, mask = prompts(3)
    cache = models.HexTransformersCache(CONFIG, HEX)
    with pytest.raises(ValueError, match="0, on the left of each row, got 0 after 1 at position"):
        generate(attached_model("llama"), ids, mask.flip(1), cache)
    every = torch.ones_like(mask)
    assert_equal(
        generate(attached_model("llama"), ids, every, cache),
        generate(attached_model("llama"), ids, every, models.HexTransformersCache(CONFIG, HEX)),
    )


def test_a_call_that_fails_in_the_middle_leaves_a_cache_that_says_so():
    ids, _ = prompts(3)
    model, cache = models.attach(new_model("llama")), models.HexTransformersCache(CONFIG, HEX)
    hook = model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
    layer = model.model.layers[1].self_attn.q_proj.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(input_ids=ids, past_key_values=cache)
    hook.remove()
    layer.remove()
    with pytest.raises(ValueError, match="or by a call that failed: make a new cache"):
        model(input_ids=ids, past_key_values=cache)
