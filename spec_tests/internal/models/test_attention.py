"""An attached model computes the same as before, without a tensor of queries × tokens."""

from functools import partial

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.oracle import assert_logits
from spec_tests.internal.models.random_model import (
    TOKENS,
    VOCABULARY,
    attached_model,
    configuration,
    every_architecture,
    models,
    new_model,
    prompts,
    transformers,
)
from spec_tests.scorers.largest_allocation import largest


@every_architecture
def test_an_attached_model_gives_the_logits_it_gave(kind):
    ids, mask = prompts()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        out = attached_model(kind)(input_ids=ids, attention_mask=mask, position_ids=positions)
    assert_logits(out.logits[mask.bool()], kind, ids, mask)
    read = models.prefill(attached_model(kind), ids, mask, chunk=7)
    assert_logits(read.logits[:, None], kind, ids, mask, 1)


@pytest.mark.parametrize("chunk", [None, 700])
def test_reading_a_padded_prompt_makes_nothing_of_queries_times_tokens(chunk):
    tokens = 8 * models.attention.BLOCK
    ids = torch.randint(2, VOCABULARY, (1, tokens), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    how = dict(chunk=chunk, watch=[lambda _: None])
    made = largest(partial(models.prefill, attached_model("llama"), ids, mask), **how)
    assert made < tokens * tokens / 2


def static_call(ids, mask):
    """Return the inputs of two calls, and a cache of fixed size."""
    cache = transformers.StaticCache(config=configuration("llama"), max_cache_len=64)
    first = dict(input_ids=ids[:, :9], attention_mask=mask[:, :9])
    return [first, dict(input_ids=ids[:, 9:], attention_mask=mask)], cache


def packed_call(ids, mask):
    """Return the inputs of a call with two sequences packed into each row."""
    del mask
    places = torch.arange(TOKENS // 2).repeat(2).expand(ids.shape)
    return [dict(input_ids=ids, position_ids=places, use_cache=False)], None


def masked_call(ids, mask):
    """Return the inputs of a call whose mask hides every second token from all other queries."""
    del mask
    sees = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
    sees[..., 1::2] &= torch.eye(TOKENS, dtype=torch.bool)[:, 1::2]
    return [dict(input_ids=ids, attention_mask=sees)], None


def dynamic_call(ids, mask):
    """Return the inputs of a call, and a dynamic cache with a layer for each kind of attention."""
    return [dict(input_ids=ids, attention_mask=mask)], transformers.DynamicCache(
        config=configuration("llama")
    )


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("call", [static_call, packed_call, masked_call, dynamic_call])
def test_every_call_without_a_cache_of_ours_is_what_it_was(call, implementation):
    both = []
    for attach in (lambda model: model, models.attach):
        model = new_model("llama")
        model.set_attn_implementation(implementation)
        calls, cache = call(*prompts())
        more = {} if cache is None else {"past_key_values": cache}
        with torch.no_grad():
            both.append([attach(model)(**one, **more).logits for one in calls])
    assert_equal(*both)


def test_a_model_that_is_detached_is_the_model_it_was():
    model, ids = models.attach(new_model("llama")), prompts()[0]
    models.detach(model)
    assert model.config._attn_implementation == "sdpa"
    modules = (model.model, *(layer.self_attn for layer in model.model.layers))
    assert not any(one._forward_pre_hooks for one in modules)
    with pytest.raises(ValueError, match=r"prepared by `attach\(model\)`, got attn_impl"):
        models.prefill(model, ids)
    models.prefill(models.attach(model), ids)


def test_attaching_twice_is_attaching_once():
    model = new_model("llama")
    models.attach(model)
    hooks = len(model.model._forward_pre_hooks)
    models.attach(model)
    assert len(model.model._forward_pre_hooks) == hooks == 1
