"""Calls that the plug-in refuses, each with one clear sentence."""

from functools import partial

import pytest
import torch

import optimized
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    configuration,
    generate,
    models,
    prompts,
    read,
    transformers,
    with_random_weights,
)


def read_prompt(evicted: bool = True):
    """Return a cache of a prompt, half of it evicted."""
    prompt, ids, mask = read(more=2)
    if evicted:
        kept = prompt.valid[:, None].expand(2, 2, TOKENS)
        prompt.cache.evict([kept, kept])
    return prompt, ids, mask


def from_config(kind: str, **more):
    """Return a model with the random weights of `transformers`."""
    return transformers.AutoModelForCausalLM.from_config(configuration(kind, **more))


def blenderbot():
    """Return the decoder of an encoder-decoder."""
    sizes = dict(d_model=16, encoder_layers=2, decoder_layers=2, vocab_size=20, pad_token_id=0)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, is_decoder=True)
    config = transformers.BlenderbotSmallConfig(**sizes, **heads)
    return transformers.BlenderbotSmallForCausalLM(config)


def t5():
    """Return an encoder-decoder."""
    sizes = dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=20)
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))


def gpt2():
    """Return a model whose modules have other names than Llama's."""
    sizes = dict(n_embd=16, n_layer=1, n_head=2, vocab_size=20)
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))


STATES = ["linear_attention", "full_attention"]
MODELS = {
    "a window in every layer": (
        lambda: from_config("mistral", sliding_window=16),
        r"a layer that sees the whole text, got 'mistral' with a window of 16 tokens in every",
    ),
    "states alone": (
        lambda: from_config("mamba"),
        "sees the whole text, got 'mamba' with a state and no keys in every layer",
    ),
    "an encoder-decoder": (t5, "a decoder alone, got 't5', an encoder-decoder"),
    "the decoder of one": (blenderbot, "got 'blenderbot-small', an encoder-decoder or part"),
    "other names": (gpt2, r"attend in `self_attn`, as Llama's.*'gpt2' with 0"),
    "a model that takes its cache apart": (
        lambda: from_config("diffllama"),
        "got 'diffllama', which raises TypeError: chunk",
    ),
    "a model with a cache of its own": (
        lambda: from_config("minimax", layer_types=STATES),
        "got 'minimax', which raises ValueError: MiniMax uses",
    ),
    "a model that sees the future": (
        lambda: from_config("gemma3_text", use_bidirectional_attention=True),
        "got 'gemma3_text', whose attention differs by",
    ),
}


@pytest.mark.parametrize("kind", MODELS)
def test_a_model_that_cannot_be_served_is_refused(kind):
    make, says = MODELS[kind]
    with pytest.raises(ValueError, match=says):
        models.attach(make())


def test_more_tokens_than_learned_positions_are_refused():
    sizes = dict(ffn_dim=16, word_embed_proj_dim=32, max_position_embeddings=TOKENS + 8)
    model = with_random_weights(configuration("opt", **sizes))
    ids, _ = prompts()
    models.compressed(model, "snapkv", ids, ratio=0.5)
    with pytest.raises(ValueError, match="learned positions for, 32, got 44; repeats by KVzip"):
        models.compressed(model, "kvzip", ids, ratio=0.5)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_cache_in_a_model_that_is_not_attached_is_refused(kind):
    prompt, ids, mask = read_prompt()
    model = transformers.AutoModelForCausalLM.from_config(
        configuration("llama"), attn_implementation=kind
    )
    with pytest.raises(ValueError, match=r"attend through this package over a cache of it"):
        generate(model, ids, mask, prompt.cache)


def test_taking_tokens_back_is_refused():
    prompt, _, _ = read_prompt()
    with pytest.raises(NotImplementedError, match="prompt-lookup decoding is not supported"):
        prompt.cache.crop(-1)
    ids, how = prompts()[0][:1], dict(max_new_tokens=4, prompt_lookup_num_tokens=2)
    cache = models.compressed(attached_model("llama"), "snapkv", ids, ratio=0.5)
    with pytest.raises(NotImplementedError, match="prompt-lookup decoding is not supported"):
        attached_model("llama").generate(ids, past_key_values=cache, **how)


def test_an_empty_prompt_and_an_empty_chunk_are_refused():
    ids, mask = prompts()
    with pytest.raises(ValueError, match="input_ids must be integers"):
        models.prefill(attached_model("llama"), ids[:, :0])
    with pytest.raises(ValueError, match=r"chunk must be >= 1, got 0"):
        models.prefill(attached_model("llama"), ids, mask, chunk=0)


def test_keeping_padding_is_refused():
    prompt, _, _ = read_prompt(evicted=False)
    kept = torch.ones(2, 2, 2, TOKENS, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"kept\[0\] must be False at padding"):
        prompt.cache.evict(kept)


def test_masks_of_another_shape_or_number_are_refused():
    prompt, _, _ = read_prompt(evicted=False)
    kept = torch.ones(2, 2, 2, TOKENS - 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"kept\[0\] must have shape \(2, 2, 24\)"):
        prompt.cache.evict(kept)
    with pytest.raises(ValueError, match="kept must have one entry for each of 2 layers, got 1"):
        prompt.cache.evict(kept[:1])


def test_evicting_twice_is_refused():
    prompt, _, _ = read_prompt()
    kept = torch.ones(2, 2, 2, TOKENS, dtype=torch.bool)
    with pytest.raises(ValueError, match="cache must be filled and whole"):
        prompt.cache.evict(kept)


def test_an_unknown_scorer_is_refused():
    with pytest.raises(
        ValueError, match=r"name must be one of .* random, .*, got 'snapkvv': did you mean 'snapk"
    ):
        models.scorer("snapkvv", attached_model("llama"))
    with pytest.raises(ValueError, match=r", streaming_llm.*, got LlamaForCausalLM$"):
        models.scorer(attached_model("llama"), "snapkv")


def test_a_scope_that_a_compressor_lacks_is_refused():
    prompt, _, _ = read_prompt(evicted=False)
    blank = torch.zeros(2, 2, TOKENS)
    scored = [optimized.Scored(blank, blank.bool())] * 2
    with pytest.raises(ValueError, match="scope must be 'head' for graphkv_compress, got 'model'"):
        prompt.cache.compress(
            scored, optimized.graphkv_compress, scope="model", refinement=optimized.GraphSettings(4)
        )


def test_dropout_while_training_is_refused():
    config = configuration("llama", attention_dropout=0.5)
    model = models.attach(transformers.AutoModelForCausalLM.from_config(config)).train()
    with pytest.raises(ValueError, match=r"dropout must be 0, got 0.5: call `model.eval\(\)`"):
        models.prefill(model, prompts()[0])


@pytest.mark.parametrize("values", [torch.zeros(26), torch.tensor([0.5] + [1] * 25)])
def test_a_mask_of_other_numbers_than_flags_is_refused(values):
    model, ids = attached_model("llama"), prompts(2)[0]
    cache, mask = models.compressed(model, "full", ids[:, :TOKENS]), values.expand(2, -1)
    read_more = partial(model, ids[:, TOKENS:], past_key_values=cache)
    for read_masked in (read_more, partial(models.compressed, model, "full", ids)):
        with pytest.raises(ValueError, match=r"1 at tokens, which each row has.* it is not added"):
            read_masked(attention_mask=mask)
    read_more(attention_mask=torch.ones(2, 26))


def test_a_mask_of_queries_times_tokens_is_refused():
    prompt, ids, _ = read_prompt()
    mask = torch.ones(2, 1, 2, TOKENS + 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"of shape \(batch, tokens\), got \(2, 1, 2, 26\)"):
        attached_model("llama")(
            input_ids=ids[:, TOKENS:], attention_mask=mask, past_key_values=prompt.cache
        )
