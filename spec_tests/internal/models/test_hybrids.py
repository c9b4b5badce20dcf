"""Models with recurrent states, or with layers that reuse the keys of another layer."""

from copy import deepcopy

import pytest
import torch

import optimized
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    configuration,
    generate,
    logits_after,
    models,
    new_model,
    prompts,
    with_random_weights,
)

HYBRIDS = ("lfm2", "qwen3_5_text", "bamba", "falcon_h1")
every_hybrid = pytest.mark.parametrize("kind", HYBRIDS)
SYSTEMS: dict = {
    "full": {},
    "snapkv": dict(ratio=0.5, settings={"window": 4}),
    "h2o+hubkv": dict(keep=10, interval=4),
    "hex-4": {},
    "gear": {},
}
JAMBA = dict(
    attn_layer_period=2, attn_layer_offset=1, num_experts=1, use_mamba_kernels=False, head_dim=8
)


def read_cache(kind: str, system: str, count: int = TOKENS):
    """Return a system's cache of a prompt, and the prompt."""
    ids, _ = prompts(8)
    asked = optimized.HexConfig(density=0.0, block=8, recent=2) if system == "hex-4" else system
    return models.compressed(attached_model(kind), asked, ids[:, :count], **SYSTEMS[system]), ids


def states(cache) -> list[torch.Tensor]:
    """Return copies of all recurrent states."""
    held = [vars(layer) for layer in cache.states.values()]
    both = [one[name].values() for one in held for name in ("conv_states", "recurrent_states")]
    return [x.clone() for some in both for x in some if x is not None]


@pytest.mark.parametrize(
    ("kind", "system"),
    [
        *((HYBRIDS[0], system) for system in SYSTEMS),
        *zip(HYBRIDS[1:], ("full", "gear", "snapkv"), strict=True),
    ],
)
def test_a_question_leaves_no_trace_in_the_states(kind, system):
    cache, ids = read_cache(kind, system)
    before = states(cache)
    assert before
    mask = torch.ones_like(ids)
    with cache.undone():
        first = generate(attached_model(kind), ids, mask, cache)
        assert not all(map(torch.equal, states(cache), before))
    assert all(map(torch.equal, states(cache), before))
    copy = deepcopy(cache)
    assert torch.equal(generate(attached_model(kind), ids, mask, copy), first)
    assert all(map(torch.equal, states(cache), before))
    assert torch.equal(generate(attached_model(kind), ids, mask, cache), first)


@every_hybrid
@pytest.mark.parametrize("padded", [False, True])
def test_a_whole_cache_continues_as_the_model_does(kind, padded):
    ids, mask = prompts(8)
    mask = mask if padded else torch.ones_like(mask)
    expected = generate(new_model(kind), ids, mask)
    for count in (TOKENS, TOKENS + 8):
        cache = models.compressed(attached_model(kind), "full", ids[:, :count], mask[:, :count])
        assert torch.equal(generate(attached_model(kind), ids, mask, cache), expected)


@every_hybrid
def test_states_are_counted_among_the_bytes(kind):
    cache, _ = read_cache(kind, "full")
    keys = [x for layer in cache.whole_layers() for x in layer.whole]
    assert cache.nbytes >= optimized.stored_bytes(keys) + optimized.stored_bytes(states(cache))


@every_hybrid
def test_several_tokens_cannot_be_taken_back_from_a_state(kind):
    cache, ids = read_cache(kind, "full")
    logits_after(attached_model(kind), cache, ids, torch.ones_like(ids), 8)
    with pytest.raises(ValueError, match="input_ids must hold a new token behind the 32"):
        generate(attached_model(kind), ids, torch.ones_like(ids), cache)


@every_hybrid
def test_one_token_is_never_padding_for_a_state(kind):
    cache, ids = read_cache(kind, "full")
    mask = torch.ones_like(ids)[:, : TOKENS + 1]
    mask[1, -1] = 0
    with pytest.raises(ValueError, match="attention_mask must be 1 in a call of one token, got 0"):
        logits_after(attached_model(kind), cache, ids[:, : TOKENS + 1], mask, 1)


def test_a_model_whose_states_begin_anew_reads_its_prompt_at_once():
    model = with_random_weights(configuration("jamba", **JAMBA))
    ids, mask = prompts()
    expected = generate(deepcopy(model), ids, mask)
    cache = models.compressed(model, "full", ids, mask)
    assert torch.equal(generate(model, ids, mask, cache), expected)
    cache = models.compressed(model, "full", ids[:, :-4], mask[:, :-4])
    with pytest.raises(ValueError, match="whose states start again when it reads 4 tokens after"):
        generate(model, ids, mask, cache)
    with pytest.raises(ValueError, match="whose states start again"):
        models.prefill(model, ids, mask, chunk=8)


@pytest.mark.parametrize("system", ["hex-4", "h2o+hubkv", "gear"])
def test_layers_that_read_the_keys_of_another_are_evicted_alone(system):
    with pytest.raises(ValueError, match="some of whose layers attend to the keys of another"):
        read_cache("gemma4_text", system)
    cache, ids = read_cache("gemma4_text", "snapkv")
    assert generate(attached_model("gemma4_text"), ids, torch.ones_like(ids), cache).shape[1] == 40
