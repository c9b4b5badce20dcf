"""An attached model is the model it was, and a prompt costs no queries × tokens."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from spec_tests.accuracy import assert_as_accurate, assert_equal
from spec_tests.models.oracle import model_logits
from spec_tests.models.random_model import (
    TOKENS,
    VOCABULARY,
    attached,
    configuration,
    every_architecture,
    every_main_architecture,
    fresh,
    generated,
    logits_after,
    models,
    prompts,
    transformers,
    unmodified,
    weights,
)


@every_architecture
def test_an_attached_model_gives_the_logits_it_gave(kind):
    ids, mask = prompts()
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        out = attached(kind)(input_ids=ids, attention_mask=mask, position_ids=positions)
    inputs = dict(weights=weights(kind), kind=kind, ids=ids, mask=mask)
    assert_as_accurate(out.logits[mask.bool()], model_logits, inputs)


@every_main_architecture
def test_an_attached_model_generates_what_it_generated(kind):
    ids, mask = prompts()
    expected = generated(unmodified(kind), ids, mask)
    assert_equal(generated(attached(kind), ids, mask), expected)


@every_main_architecture
@pytest.mark.parametrize("chunk", [None, 1, 7])
def test_a_prompt_in_chunks_gives_the_logits_of_the_whole(kind, chunk):
    ids, mask = prompts()
    read = models.prefill(attached(kind), ids, mask, chunk=chunk)
    inputs = dict(weights=weights(kind), kind=kind, ids=ids, mask=mask, tokens=1)
    assert_as_accurate(read.logits[:, None], model_logits, inputs)


def test_the_unmodified_model_is_continued_from_a_whole_cache():
    ids, mask = prompts(3)
    read = models.prefill(attached("llama"), ids[:, :-3], mask[:, :-3])
    actual = logits_after(attached("llama"), read.cache, ids, mask, 3)
    inputs = dict(weights=weights("llama"), kind="llama", ids=ids, mask=mask, tokens=3)
    assert_as_accurate(actual, model_logits, inputs)


class Largest(TorchDispatchMode):
    """Notes the most elements that any tensor had."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Look at what an operation returns."""
        del types
        out = func(*args, **(kwargs or {}))
        for part in out if isinstance(out, tuple | list) else (out,):
            if isinstance(part, torch.Tensor):
                self.elements = max(self.elements, part.numel())
        return out


@pytest.mark.parametrize("chunk", [None, 700])
def test_reading_a_padded_prompt_makes_nothing_of_queries_times_tokens(chunk):
    tokens = 8 * models.attention.BLOCK
    ids = torch.randint(2, VOCABULARY, (1, tokens), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :3] = 0
    with Largest() as largest:
        models.prefill(attached("llama"), ids, mask, chunk=chunk, watch=[lambda _: None])
    assert largest.elements < tokens * tokens / 2


def static(ids, mask):
    """A cache of fixed size, filled by two calls."""
    cache = transformers.StaticCache(config=configuration("llama"), max_cache_len=64)
    first = dict(input_ids=ids[:, :9], attention_mask=mask[:, :9])
    return [first, dict(input_ids=ids[:, 9:], attention_mask=mask)], cache


def packed(ids, mask):
    """Two sequences in a row."""
    del mask
    places = torch.arange(TOKENS // 2).repeat(2).expand(ids.shape)
    return [dict(input_ids=ids, position_ids=places, use_cache=False)], None


def masked(ids, mask):
    """Every second token is hidden from every query but its own."""
    del mask
    sees = torch.ones(2, 1, TOKENS, TOKENS, dtype=torch.bool).tril()
    sees[..., 1::2] &= torch.eye(TOKENS, dtype=torch.bool)[:, 1::2]
    return [dict(input_ids=ids, attention_mask=sees)], None


def sliding(ids, mask):
    """The growing cache of a model that has one for each kind of layer."""
    return [dict(input_ids=ids, attention_mask=mask)], transformers.DynamicCache(
        config=configuration("llama")
    )


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("call", [static, packed, masked, sliding])
def test_every_call_without_a_cache_of_ours_is_what_it_was(call, implementation):
    both = []
    for attach in (lambda model: model, models.attach):
        model = fresh("llama")
        model.set_attn_implementation(implementation)
        calls, cache = call(*prompts())
        more = {} if cache is None else {"past_key_values": cache}
        with torch.no_grad():
            both.append([attach(model)(**one, **more).logits for one in calls])
    assert_equal(*both)
