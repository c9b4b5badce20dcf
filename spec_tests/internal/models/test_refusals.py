"""Calls that the plug-in refuses, each with one clear sentence."""

import pytest
import torch

import optimized
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached,
    configuration,
    drawn,
    generated,
    models,
    prompts,
    read,
    transformers,
    unmodified,
)


def cached(evicted: bool = True):
    """Return a cache of a prompt, half of it evicted."""
    prompt, ids, mask = read(more=2)
    if evicted:
        kept = prompt.valid[:, None].expand(2, 2, TOKENS)
        prompt.cache.evict([kept, kept])
    return prompt, ids, mask


def test_a_window_in_every_layer_is_refused():
    config = configuration("mistral", sliding_window=16)
    model = transformers.AutoModelForCausalLM.from_config(config)
    with pytest.raises(ValueError, match=r"'mistral' with a window of 16 tokens in every layer"):
        models.attach(model)
    with pytest.raises(ValueError, match="a layer that sees the whole text, got 'mistral'"):
        models.EvictionCache(config)


def test_a_decoder_of_an_encoder_decoder_is_refused():
    sizes = dict(d_model=16, encoder_layers=2, decoder_layers=2, vocab_size=20, pad_token_id=0)
    heads = dict(encoder_attention_heads=2, decoder_attention_heads=2, is_decoder=True)
    model = transformers.BlenderbotSmallForCausalLM(
        transformers.BlenderbotSmallConfig(**sizes, **heads)
    )
    with pytest.raises(ValueError, match=r"got 'blenderbot-small', an encoder-decoder or a part"):
        models.attach(model)


def test_more_tokens_than_learned_positions_are_refused():
    sizes = dict(ffn_dim=16, word_embed_proj_dim=32, max_position_embeddings=TOKENS + 8)
    model = drawn(configuration("opt", **sizes))
    ids, _ = prompts()
    models.compressed(model, "snapkv", ids, ratio=0.5)
    with pytest.raises(ValueError, match="learned positions for, 32, got 44; what KVzip"):
        models.compressed(model, "kvzip", ids, ratio=0.5)


def test_an_encoder_decoder_is_refused():
    sizes = dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=20)
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(ValueError, match=r"a decoder alone, got 't5', an encoder-decoder"):
        models.attach(model)


def test_a_model_of_another_form_is_refused():
    sizes = dict(n_embd=16, n_layer=1, n_head=2, vocab_size=20)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with pytest.raises(ValueError, match=r"attend in `self_attn`, as Llama's.*'gpt2' with 0"):
        models.attach(model)


def test_a_model_that_caches_something_else_is_refused_by_name():
    model = transformers.AutoModelForCausalLM.from_config(configuration("mamba"))
    says = "sees the whole text, got 'mamba' with a state and no keys in every layer"
    with pytest.raises(ValueError, match=says):
        models.compressed(model, "snapkv", prompts()[0], ratio=0.5)


def test_a_model_that_takes_its_cache_apart_is_refused():
    model = transformers.AutoModelForCausalLM.from_config(configuration("diffllama"))
    with pytest.raises(ValueError, match=r"got 'diffllama', which ends in TypeError: chunk"):
        models.attach(model)


def test_a_model_that_is_not_attached_is_refused():
    ids, mask = prompts()
    with pytest.raises(ValueError, match=r"prepared by `attach\(model\)`, got attn_impl.* 'sdpa'"):
        models.prefill(unmodified("llama"), ids, mask)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
def test_a_cache_in_a_model_that_is_not_attached_is_refused(kind):
    prompt, ids, mask = cached()
    model = transformers.AutoModelForCausalLM.from_config(
        configuration("llama"), attn_implementation=kind
    )
    with pytest.raises(ValueError, match=r"attend through this package over a cache of it"):
        generated(model, ids, mask, prompt.cache)


def test_taking_tokens_back_is_refused():
    prompt, _, _ = cached()
    with pytest.raises(NotImplementedError, match=r"assisted decoding \(crop\) is not supported"):
        prompt.cache.crop(-1)


def test_padding_on_the_right_is_refused():
    ids, mask = prompts()
    with pytest.raises(ValueError, match="attention_mask must have its padding, 0, on the left"):
        models.prefill(attached("llama"), ids, mask.flip(1))


def test_an_empty_prompt_and_an_empty_chunk_are_refused():
    ids, mask = prompts()
    with pytest.raises(ValueError, match="input_ids must be integers"):
        models.prefill(attached("llama"), ids[:, :0])
    with pytest.raises(ValueError, match=r"chunk must be >= 1, got 0"):
        models.prefill(attached("llama"), ids, mask, chunk=0)


def test_another_batch_size_is_refused():
    prompt, ids, mask = cached()
    with pytest.raises(ValueError, match="must have the cache's batch size 2, got 1"):
        generated(attached("llama"), ids[:1], mask[:1], prompt.cache)


def test_keeping_padding_is_refused():
    prompt, _, _ = cached(evicted=False)
    kept = torch.ones(2, 2, 2, TOKENS, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"kept\[0\] must be False at padding"):
        prompt.cache.evict(kept)


def test_masks_of_another_shape_or_number_are_refused():
    prompt, _, _ = cached(evicted=False)
    kept = torch.ones(2, 2, 2, TOKENS - 1, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"kept\[0\] must have shape \(2, 2, 24\)"):
        prompt.cache.evict(kept)
    with pytest.raises(ValueError, match="kept must have one entry for each of 2 layers, got 1"):
        prompt.cache.evict(kept[:1])


def test_evicting_twice_is_refused():
    prompt, _, _ = cached()
    kept = torch.ones(2, 2, 2, TOKENS, dtype=torch.bool)
    with pytest.raises(ValueError, match="cache must be filled and whole"):
        prompt.cache.evict(kept)


def test_an_unknown_scorer_is_refused():
    with pytest.raises(
        ValueError, match=r"name must be one of .* random, .*, got 'snapkvv': did you mean 'snapk"
    ):
        models.scorer("snapkvv", attached("llama"))
    with pytest.raises(ValueError, match=r"streaming_llm, got LlamaForCausalLM$"):
        models.scorer(attached("llama"), "snapkv")


def test_a_scope_that_a_compressor_lacks_is_refused():
    prompt, _, _ = cached(evicted=False)
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


def test_packed_sequences_are_refused():
    ids, _ = prompts(TOKENS)
    cache = models.prefill(attached("llama"), ids[:, :TOKENS]).cache
    places = torch.arange(TOKENS // 2).repeat(2).expand(2, TOKENS)
    with pytest.raises(ValueError, match=r"position_ids must continue in every row.*packed"):
        attached("llama")(input_ids=ids[:, TOKENS:], position_ids=places, past_key_values=cache)


def test_a_mask_of_queries_times_tokens_is_refused():
    prompt, ids, _ = cached()
    mask = torch.ones(2, 1, 2, TOKENS + 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"of shape \(batch, tokens\), got \(2, 1, 2, 26\)"):
        attached("llama")(
            input_ids=ids[:, TOKENS:], attention_mask=mask, past_key_values=prompt.cache
        )
