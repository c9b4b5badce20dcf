"""Calls of an attached model: as before without a cache of ours, and checked with one."""

from functools import partial

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import TOKENS, models, new_model, prompts, transformers
from spec_tests.internal.models.test_laws import HEX
from spec_tests.scorers.largest_allocation import largest


@pytest.mark.parametrize("chunk", [None, 700])
def test_reading_a_padded_prompt_makes_nothing_of_queries_times_tokens(chunk):
    tokens = 8 * models.attention.BLOCK
    ids = torch.randint(
        2, small.VOCABULARY, (1, tokens), generator=torch.Generator().manual_seed(0)
    )
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    how = dict(chunk=chunk, watch=[lambda _: None])
    made = largest(partial(models.prefill, small.attached_model("llama"), ids, mask), **how)
    assert made < tokens * tokens / 2


def static_call(ids, mask):
    """Return the inputs of two calls, and a cache of fixed size."""
    cache = transformers.StaticCache(config=small.configuration("llama"), max_cache_len=64)
    first = dict(input_ids=ids[:, :9], attention_mask=mask[:, :9])
    return [first, dict(input_ids=ids[:, 9:], attention_mask=mask)], cache


def masked_call(ids, mask):
    """Return the inputs of a call whose mask hides every second token from all other queries."""
    del mask
    sees = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
    sees[..., 1::2] &= torch.eye(TOKENS, dtype=torch.bool)[:, 1::2]
    return [dict(input_ids=ids, attention_mask=sees)], None


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("call", [static_call, masked_call])
def test_every_call_without_a_cache_of_ours_is_what_it_was(call, implementation):
    both = []
    for attach in (lambda model: model, models.attach):
        model = new_model("llama")
        model.set_attn_implementation(implementation)
        calls, cache = call(*prompts())
        past = {} if cache is None else {"past_key_values": cache}
        with torch.no_grad():
            both.append([attach(model)(**inputs, **past).logits for inputs in calls])
    assert_equal(*both)


def test_a_model_that_is_attached_twice_and_detached_is_the_model_it_was():
    model, ids = models.attach(models.attach(new_model("llama"))), prompts()[0]
    assert len(model.model._forward_pre_hooks) == 1
    models.detach(model)
    assert model.config._attn_implementation == "sdpa"
    modules = (model.model, *(layer.self_attn for layer in model.model.layers))
    assert not any(module._forward_pre_hooks for module in modules)
    with pytest.raises(ValueError, match=r"prepared by `attach\(model\)`, got attn_impl"):
        models.prefill(model, ids)
    models.prefill(models.attach(model), ids)


CONFIG = small.attached_model("llama").config
CALLS = {
    "by position": lambda model, ids, mask, cache: model(ids, mask, None, cache),
    "without positions and mask": lambda model, ids, _, cache: model(ids, past_key_values=cache),
    "embeddings": lambda model, ids, mask, cache: model(
        inputs_embeds=model.get_input_embeddings()(ids), attention_mask=mask, past_key_values=cache
    ),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_call_finds_what_it_is_not_told(call):
    prompt, ids, mask = small.read(extra=3)
    prompt.cache.evict(torch.rand(2, 2, 2, TOKENS).gt(0.5) & prompt.valid[:, None])
    model, new = small.attached_model("llama"), ids[:, TOKENS:]
    with prompt.cache.undone():
        expected = small.logits_after(model, prompt.cache, ids, mask, 3)
    with torch.no_grad():
        assert_equal(CALLS[call](model, new, mask, prompt.cache).logits, expected)


ROPES: dict[str, dict] = {
    "dynamic": {},
    "longrope": dict(short_factor=[1.0] * 4, long_factor=[1.0, 2.0, 4.0, 8.0])
    | dict(original_max_position_embeddings=64),
}


@pytest.mark.parametrize("rope", ROPES)
def test_a_rotation_that_changes_between_two_calls_is_refused(rope):
    settings = dict(rope_type=rope, rope_theta=1e4, factor=4.0) | ROPES[rope]
    changed = new_model("llama", max_position_embeddings=64, rope_parameters=settings)
    model, ids = models.attach(changed), prompts(64)[0].view(1, -1)[:, :100]
    assert torch.isfinite(models.prefill(model, ids).logits).all()
    with pytest.raises(ValueError, match=f"'{rope}' whose angles change beyond 64 .* with 60"):
        models.prefill(model, ids, chunk=30)
    assert_equal(models.prefill(model, ids[:, :64], chunk=64).cache.get_seq_length(), 64)
    scorer = models.scorer("kvzip", model, chunk=40)  # which repeats what it read
    scorer.finish(models.prefill(model, ids[:, :30]), 9)
    with pytest.raises(ValueError, match=f"'{rope}' whose angles change beyond 64 .* with 40"):
        scorer.finish(models.prefill(model, ids[:, :40]), 9)


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
