"""Calls of a new user: each one does what the user expects, or raises a helpful error."""

from threading import Barrier, Thread
from types import SimpleNamespace

import pytest
import torch

import optimized
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.oracle import assert_logits
from spec_tests.internal.models.random_model import (
    TOKENS,
    VOCABULARY,
    attached_model,
    configuration,
    generate,
    logits_after,
    models,
    new_model,
    prompts,
    read,
    transformers,
)

HEX = optimized.HexConfig(density=0.0, block=8, recent=2)


def random_scores(kv=optimized, seed: int = 0):
    """Return random scores of both layers."""
    draw = torch.Generator().manual_seed(seed)
    every = torch.rand(2, 2, 2, TOKENS, generator=draw)
    return [kv.Scored(one, torch.zeros_like(one, dtype=torch.bool)) for one in every]


def half_evicted(more: int = 3, padded: bool = True, **how):
    """Return a half-evicted cache, and ids and mask of the prompts with `more` further tokens."""
    prompt, ids, mask = read("llama", padded, more)
    prompt.cache.compress(random_scores(), optimized.compress, ratio=0.5, **how)
    return prompt.cache, ids, mask


def hex_cache(**how):
    """Return HEX's cache for the attached model."""
    return models.HexTransformersCache(attached_model("llama").config, HEX._replace(**how))


def test_the_last_token_of_a_whole_cache_is_read_again():
    ids, mask = prompts()
    prompt = models.prefill(attached_model("llama"), ids, mask)
    expected = generate(attached_model("llama"), ids, mask)
    assert_equal(generate(attached_model("llama"), ids, mask, prompt.cache), expected)


@pytest.mark.parametrize("name", ["hex", "decoding"])
def test_a_cache_that_cannot_take_a_token_back_asks_for_a_new_one(name):
    ids, mask = prompts()
    cache = hex_cache()
    if name == "decoding":
        settings = optimized.DecodingConfig(10, 4, "layer")
        cache = models.DecodingTransformersCache(attached_model("llama").config, settings)
    mask = torch.ones_like(mask)
    logits_after(attached_model("llama"), cache, ids, mask, TOKENS)
    with pytest.raises(ValueError, match="a new token behind the 24 that the cache has seen"):
        generate(attached_model("llama"), ids, mask, cache)


def test_positions_and_padding_that_a_call_leaves_out_are_known():
    cache, ids, mask = half_evicted()
    with cache.undone():
        expected = logits_after(attached_model("llama"), cache, ids, mask, 3)
    with torch.no_grad():
        actual = attached_model("llama")(input_ids=ids[:, TOKENS:], past_key_values=cache).logits
    assert_equal(actual, expected)


def test_a_mask_that_forgets_the_padding_is_refused():
    prompt, ids, mask = read(more=3)
    positions = (mask.cumsum(-1) - 1)[:, TOKENS:]
    inputs = dict(input_ids=ids[:, TOKENS:], position_ids=positions, past_key_values=prompt.cache)
    with pytest.raises(ValueError, match="attention_mask must not change for the tokens"):
        attached_model("llama")(attention_mask=torch.ones_like(mask), **inputs)


@pytest.mark.parametrize("scope", ["head", "layer", "model"])
def test_padding_is_left_out_without_being_told(scope):
    known, _, mask = half_evicted(scope=scope)
    told, _, _ = half_evicted(scope=scope, valid=mask.bool()[:, :TOKENS])
    for mine, other in zip(known.evictable(), told.evictable(), strict=True):
        assert_equal(mine.whole, other.whole)
        assert_equal(mine.old, other.old)


def test_padding_that_is_called_a_token_is_refused():
    ids, mask = prompts()
    prompt = models.prefill(attached_model("llama"), ids, mask)
    with pytest.raises(ValueError, match="valid must be False at the padding that was read"):
        prompt.cache.compress(
            random_scores(), optimized.compress, keep=9, valid=torch.ones(2, TOKENS).bool()
        )


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
def test_a_rotation_that_changes_between_two_chunks_is_refused(rope):
    model, ids = rotating_model(rope)
    whole = models.prefill(model, ids).logits
    assert torch.isfinite(whole).all()
    with pytest.raises(ValueError, match=f"'{rope}' whose angles change beyond 64 .* with 60"):
        models.prefill(model, ids, chunk=30)
    assert_equal(models.prefill(model, ids[:, :64], chunk=64).cache.get_seq_length(), 64)


@every_rope
def test_a_repetition_that_changes_the_rotation_is_refused(rope):
    model, ids = rotating_model(rope)
    scorer = models.scorer("kvzip", model, chunk=40)
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


def test_two_threads_with_one_model_hear_their_own_prompt():
    model = models.attach(new_model("llama"))
    both = [prompts()[0], prompts()[0].flip(1)]
    alone = [[], []]
    for ids, steps in zip(both, alone, strict=True):
        models.prefill(model, ids, watch=[steps.append])
    # No thread attends in a layer before the other thread has passed its hidden states.
    barrier = Barrier(2, timeout=20)

    def meet(*_) -> None:
        barrier.wait()

    for layer in model.model.layers:
        layer.self_attn.q_proj.register_forward_hook(meet)
    together = [[], []]
    threads = [
        Thread(target=models.prefill, args=(model, ids), kwargs=dict(watch=[steps.append]))
        for ids, steps in zip(both, together, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, other in zip(together, alone, strict=True):
        assert_equal([step.hidden for step in mine], [step.hidden for step in other])


def test_a_model_that_has_the_name_alone_is_refused_with_our_caches():
    name = attached_model("llama").config._attn_implementation
    config = configuration("llama")
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=name)
    ids, mask = prompts()
    for call in (
        lambda: models.prefill(model, ids),
        lambda: generate(model, ids, torch.ones_like(mask), hex_cache()),
    ):
        with pytest.raises(ValueError, match=r"prepared by `attach\(model\)`, got"):
            call()


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


def test_a_cache_that_nobody_would_compress_is_refused():
    ids, mask = prompts()
    with pytest.raises(ValueError, match="got an empty EvictionCache, of which nothing would be"):
        generate(
            attached_model("llama"), ids, mask, models.EvictionCache(attached_model("llama").config)
        )


@pytest.mark.parametrize("name", models.SCORERS)
def test_a_setting_that_a_scorer_does_not_have_is_refused(name):
    with pytest.raises(ValueError, match=r"settings of \w+ must be one of .*got 'windows'"):
        models.scorer(name, attached_model("llama"), windows=5)


@pytest.mark.parametrize("kv", ["optimized", "reference"])
def test_a_compressor_keeps_its_own_default_scope(kv):
    kv = pytest.importorskip(kv)
    ids, mask = prompts()
    caches = []
    for scope in ({}, {"scope": "model"}):
        prompt = models.prefill(attached_model("llama"), ids, mask)
        how = dict(ratio=0.5, sinks=1, recent=1, **scope)
        prompt.cache.compress(random_scores(kv), kv.hubkv_compress, **how)
        caches.append([(layer.whole, layer.old) for layer in prompt.cache.evictable()])
    assert_equal(*caches)


@pytest.mark.parametrize("store", [None, HEX])
def test_negative_scores_are_told_how_to_be_refined(store):
    ids, _ = prompts()

    def compressed(shift: bool, **how):
        scorer = models.scorer("knorm", attached_model("llama"), shift=shift)
        prompt = models.prefill(attached_model("llama"), ids)
        said = scorer.finish(prompt, 9).scored, optimized.compress
        if store is None:
            prompt.cache.compress(*said, ratio=0.5, **how)
        else:
            models.HexTransformersCache.of_prompt(prompt, *said, store, **how)

    compressed(False)
    compressed(True, refinement=optimized.HubSettings())
    with pytest.raises(ValueError, match=r"finite and >= 0, got -.* `shift_scores`"):
        compressed(False, refinement=optimized.HubSettings())


@pytest.mark.parametrize("name", ["h2o", "snapkv", "pyramidkv", "cake", "expected_attention"])
def test_a_prompt_that_its_scorer_did_not_watch_is_refused(name):
    ids, _ = prompts()
    how = {} if name in ("h2o", "expected_attention") else {"window": 4}
    scorer = models.scorer(name, attached_model("llama"), **how)
    unseen = models.prefill(attached_model("llama"), ids)
    seen = models.prefill(attached_model("llama"), ids.flip(1), watch=[scorer.watch])
    scorer.finish(seen, 9)
    with pytest.raises(ValueError, match=r"prompt must be one that \w+ watched"):
        scorer.finish(unseen, 9)


@pytest.mark.parametrize("watch", [print, [3], None])
def test_what_is_no_list_of_functions_cannot_watch(watch):
    with pytest.raises(TypeError, match="watch must be a list of functions, got"):
        models.prefill(attached_model("llama"), prompts()[0], watch=watch)


@pytest.mark.parametrize("prompt", ["hex", "eviction"])
def test_a_cache_works_under_autocast(prompt):
    ids, _ = prompts(4)
    every = torch.ones_like(ids)
    with torch.autocast("cpu", torch.bfloat16):
        cache = hex_cache() if prompt == "hex" else half_evicted(4, padded=False, scope="layer")[0]
        text = generate(models.attach(new_model("llama")), ids, every, cache)
    assert text.shape[1] == ids.shape[1] + 8
    exact = [layer.cache.residual_keys if prompt == "hex" else layer.keys for layer in cache.layers]
    assert all(keys.dtype == torch.bfloat16 for keys in exact)


@pytest.mark.parametrize("name", ["hex", "decoding", "eviction"])
def test_entries_that_an_adapter_puts_before_the_prompt_are_refused(name):
    ids, _ = prompts()
    config, settings = attached_model("llama").config, optimized.DecodingConfig(10, 4, "layer")
    cache = {
        "hex": lambda: hex_cache(),
        "decoding": lambda: models.DecodingTransformersCache(config, settings),
        "eviction": lambda: models.EvictionCache(config),
    }[name]()
    for layer in range(2):
        cache.update(torch.ones(2, 2, 3, 8), torch.ones(2, 2, 3, 8), layer)
    with pytest.raises(ValueError, match=r"put there by `update` \(as prefix tuning does\)"):
        attached_model("llama")(
            input_ids=ids, attention_mask=torch.ones(2, TOKENS + 3), past_key_values=cache
        )


def test_an_adapter_that_would_put_its_own_cache_in_place_is_refused():
    with pytest.raises(NotImplementedError, match=r"prefix tuning is not supported .* without the"):
        _ = hex_cache().max_cache_len


def test_a_model_whose_adapter_brings_its_own_cache_is_refused():
    learned = SimpleNamespace(is_prompt_learning=True, peft_type="PREFIX_TUNING")
    model = SimpleNamespace(config=configuration("llama"), active_peft_config=learned)
    with pytest.raises(ValueError, match=r"no adapter that learns a prompt.*got PREFIX_TUNING"):
        models.attach(model)


@pytest.mark.parametrize("mode", ["append", "full"])
def test_hex_refuses_channels_without_a_mask_at_construction(mode):
    config = configuration("llama", head_dim=32)
    settings = optimized.hex_preset("HEX-3")._replace(mode=mode)
    with pytest.raises(ValueError, match=r"at 96 tokens and 64 channels .*near=True accepts any"):
        models.HexTransformersCache(config, settings)
    for fitting in (dict(near=True), dict(density=0.0625), dict(density=0.0)):
        models.HexTransformersCache(config, settings._replace(**fitting))
    with pytest.raises(TypeError, match="settings must be a HexConfig, got 'HEX-3'"):
        models.HexTransformersCache(config, "HEX-3")


def test_a_call_that_is_refused_leaves_the_cache_as_it_was():
    ids, mask = prompts(3)
    cache = hex_cache()
    with pytest.raises(ValueError, match="0, on the left of each row, got 0 after 1 at position"):
        generate(attached_model("llama"), ids, mask.flip(1), cache)
    every = torch.ones_like(mask)
    assert_equal(
        generate(attached_model("llama"), ids, every, cache),
        generate(attached_model("llama"), ids, every, hex_cache()),
    )


def test_a_call_that_fails_in_the_middle_leaves_a_cache_that_says_so():
    ids, _ = prompts(3)
    model, cache = models.attach(new_model("llama")), hex_cache()
    hook = model.model.layers[1].mlp.register_forward_pre_hook(lambda *_: 1 / 0)
    layer = model.model.layers[1].self_attn.q_proj.register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model(input_ids=ids, past_key_values=cache)
    hook.remove()
    layer.remove()
    with pytest.raises(ValueError, match="or by a call that failed: make a new cache"):
        model(input_ids=ids, past_key_values=cache)


def test_the_decoder_alone_takes_its_inputs_by_place():
    cache, ids, mask = half_evicted()
    with torch.no_grad(), cache.undone():
        by_place = (
            attached_model("llama").model(ids[:, TOKENS:], mask, None, cache).last_hidden_state
        )
    with torch.no_grad():
        by_name = attached_model("llama").model(input_ids=ids[:, TOKENS:], past_key_values=cache)
    assert_equal(by_place, by_name.last_hidden_state)


def test_embeddings_are_read_as_their_tokens_are():
    prompt, ids, mask = read(more=3)
    embedded = attached_model("llama").get_input_embeddings()(ids[:, TOKENS:])
    with torch.no_grad():
        actual = attached_model("llama")(
            inputs_embeds=embedded, past_key_values=prompt.cache
        ).logits
    assert_logits(actual, "llama", ids, mask, 3)
