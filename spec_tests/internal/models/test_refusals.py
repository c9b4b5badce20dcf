"""Models and calls that the plug-in refuses, each with one clear sentence."""

from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace

import pytest
import torch

import optimized
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    configuration,
    generate,
    models,
    new_model,
    prompts,
    stock_model,
    transformers,
    with_random_weights,
)
from spec_tests.internal.models.test_laws import HEX

IDS, MASK = prompts()
ONES = torch.ones_like(MASK)
AGAIN = dict(keep=9, interval=4)
DECODING = optimized.DecodingConfig(10, 4, "layer")


def from_config(kind: str, attn_implementation: str | None = None, **overrides):
    """Return a model with the random weights of `transformers`."""
    how = dict(attn_implementation=attn_implementation)
    return transformers.AutoModelForCausalLM.from_config(configuration(kind, **overrides), **how)


def test_models_outside_the_table_of_architectures_are_refused():
    sizes = dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=20)
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(ValueError, match="a decoder alone, got 't5', an encoder-decoder"):
        models.attach(t5)
    with pytest.raises(ValueError, match="got 'gemma3_text', whose attention differs by"):
        models.attach(from_config("gemma3_text", use_bidirectional_attention=True))


def test_a_model_whose_adapter_brings_its_own_cache_is_refused():
    learned = SimpleNamespace(is_prompt_learning=True, peft_type="PREFIX_TUNING")
    model = SimpleNamespace(config=configuration("llama"), active_peft_config=learned)
    with pytest.raises(ValueError, match=r"no adapter that learns a prompt.*got PREFIX_TUNING"):
        models.attach(model)


LLAMA = attached_model("llama")
HYBRIDS = ("lfm2", "qwen3_5_text")


def scored() -> list:
    """Return equal scores of both layers."""
    zeros = torch.zeros(2, 2, TOKENS)
    return [optimized.Scored(zeros, zeros.bool())] * 2


def flags(tokens: int = TOKENS) -> torch.Tensor:
    """Return a mask that keeps every entry of both layers."""
    return torch.ones(2, 2, 2, tokens, dtype=torch.bool)


def full(kind: str = "llama"):
    """Return the cache of the prompts."""
    return models.prefill(attached_model(kind), IDS, MASK).cache


def evicted():
    """Return a cache of the prompts that only padding was evicted from."""
    cache = full()
    cache.evict(MASK.bool()[:, None].expand(2, 2, 2, TOKENS))
    return cache


def empty(name: str):
    """Return an empty cache for Llama."""
    if name == "eviction":
        return models.EvictionCache(LLAMA.config)
    if name == "hex":
        return models.HexTransformersCache(LLAMA.config, HEX)
    return models.DecodingTransformersCache(LLAMA.config, DECODING)


def compress(system, kind: str = "llama", **how):
    """Return the cache of the unpadded prompts."""
    return models.compressed(attached_model(kind), system, IDS, **how)


def call(mask, extra: int = 4, kind: str = "llama", system="full", **how):
    """Call a model with a mask and `extra` tokens behind the prompt that a system has read."""
    ids, cache = prompts(extra)[0], compress(system, kind, **how)
    new = ids[:, cache.get_seq_length() :]
    return attached_model(kind)(new, attention_mask=mask, past_key_values=cache)


def ask_nothing_new(kind: str, system, **how):
    """Generate from the ids that a system has read, the last four in one call."""
    (ids, _), model, cache = prompts(4), attached_model(kind), compress(system, kind, **how)
    model(ids[:, cache.get_seq_length() :], past_key_values=cache)
    return generate(model, ids, torch.ones_like(ids), cache)


def only_the_name():
    """Return a model with the name of our attention, and nothing else of `attach`."""
    return from_config("llama", attn_implementation=LLAMA.config._attn_implementation)


def put_entries(name: str):
    """Put entries before the prompt, as prefix tuning does."""
    cache, mask = empty(name), torch.ones(2, TOKENS + 3)
    for layer in range(2):
        cache.update(torch.ones(2, 2, 3, 8), torch.ones(2, 2, 3, 8), layer)
    return LLAMA(IDS, attention_mask=mask, past_key_values=cache)


def read_in_training(system: str, **how):
    """Compress with a model that caches nothing, since it checkpoints gradients."""
    model = models.attach(new_model("llama"))
    model.activation_checkpointing_enable()
    return models.compressed(model.train(), system, IDS, MASK, **how)


def beams(system: str):
    """Search with beams over a cache that cannot rearrange its rows."""
    return generate(LLAMA, IDS, ONES, compress(system, **BUDGETS[system]), num_beams=2)


def drop_out():
    """Read a prompt with dropout."""
    config = configuration("llama", attention_dropout=0.5)
    model = models.attach(transformers.AutoModelForCausalLM.from_config(config)).train()
    return models.prefill(model, IDS)


@cache
def jamba():
    """Return a model whose states begin anew where several tokens are read."""
    sizes = dict(attn_layer_period=2, attn_layer_offset=1, num_experts=1, head_dim=8)
    return models.attach(new_model("jamba", use_mamba_kernels=False, **sizes))


def ask_jamba():
    """Ask a question of several tokens behind a prompt."""
    ids = prompts(4)[0]
    return generate(jamba(), ids, torch.ones_like(ids), models.compressed(jamba(), "full", IDS))


def repeat_beyond_positions():
    """Let KVzip repeat more tokens than a model has learned positions for."""
    sizes = dict(ffn_dim=16, word_embed_proj_dim=32, max_position_embeddings=TOKENS + 8)
    model = with_random_weights(configuration("opt", **sizes))
    models.compressed(model, "snapkv", IDS, ratio=0.5)
    return models.compressed(model, "kvzip", IDS, ratio=0.5)


def finish_another_prompt(name: str):
    """Score a prompt that the scorer did not watch, after one that it did."""
    scorer = models.scorer(name, LLAMA)
    scorer.finish(models.prefill(LLAMA, IDS.flip(1), watch=[scorer.watch]), 20)
    return scorer.finish(models.prefill(LLAMA, IDS), 20)


def hide_an_ended_row(kind: str, system: str):
    """Hide what a row said after its end."""
    ids, mask = prompts(3)[0], torch.ones(2, TOKENS + 3).long()
    mask[0, TOKENS - 2 : TOKENS] = 0
    return generate(attached_model(kind), ids, mask, compress(system, kind))


def case(says: str, ask: Callable[..., object], *given, **how):
    """Return a call that is refused, and a part of the message."""
    return pytest.param(partial(ask, *given, **how), says, id=says[:60])


UNATTACHED = "attend through this package over a cache of it"
NAMED = "prepared by `attach(model)`, got"
LOOKED = "prompt-lookup decoding is not supported"
FLAGS = "1 at tokens, which each row has, and 0 at padding, got values of"
ROTATES = "rotate its projected queries as Llama does, over the whole width and in halves, for "
LATENT = "got multi-head latent attention, which caches one row for all heads"
WRONG, PRESET = HEX._replace(bits=9), optimized.hex_preset("HEX-3")
SHARED = "some of whose layers attend to the keys of another"
ZEROS, SHARES = torch.zeros(2, 26), torch.tensor([0.5] + [1] * 25).expand(2, -1)
UNSEEN = torch.arange(50).view(2, 25) < 49
UNEVEN = torch.arange(52).view(2, 26) != 23  # a question that is padded in one row
HALF: dict = dict(ratio=0.5)
WATCHING = ("h2o", "snapkv", "expected_attention")
BUDGETS: dict[str, dict] = {"full": {}, "gear": {}, "h2o": AGAIN, "snapkv": HALF, "kvzip": HALF}
CALLS = [
    case(UNATTACHED, lambda: generate(stock_model("llama"), IDS, MASK, full())),
    case(UNATTACHED, lambda: generate(stock_model("minicpm3"), IDS, MASK, full("minicpm3"))),
    case(NAMED, lambda: models.prefill(only_the_name(), IDS)),
    case("got only the name of it", lambda: generate(only_the_name(), IDS, ONES, empty("hex"))),
    case(LOOKED, lambda: full().crop(-1)),
    case(LOOKED, lambda: generate(LLAMA, IDS, MASK, full(), prompt_lookup_num_tokens=2)),
    case("prefix tuning is not supported", lambda: empty("hex").max_cache_len),
    *(case("put there by `update`", put_entries, name) for name in ("hex", "decoding", "eviction")),
    case("input_ids must be integers", models.prefill, LLAMA, IDS[:, :0]),
    case("chunk must be >= 1, got 0", models.prefill, LLAMA, IDS, chunk=0),
    case("watch must be a list of functions, got", models.prefill, LLAMA, IDS, watch=len),
    case("kept[0] must be False at padding", lambda: full().evict(flags())),
    case("kept[0] must have shape (2, 2, 24)", lambda: full().evict(flags(TOKENS - 1))),
    case("kept must have one entry for each of 2 layers, got 1", lambda: full().evict(flags()[:1])),
    case("cache must be filled and whole", lambda: evicted().evict(flags())),
    case(
        "valid must be False at the padding that was read",
        lambda: full().compress(scored(), optimized.compress, keep=9, valid=flags()[0, :, 0]),
    ),
    case(
        "scope must be 'head' for graphkv_compress, got 'model'",
        lambda: full().compress(scored(), optimized.graphkv_compress, scope="model"),
    ),
    case(
        "got an empty EvictionCache, of which nothing would be",
        lambda: generate(LLAMA, IDS, MASK, empty("eviction")),
    ),
    case("got LlamaForCausalLM", models.scorer, LLAMA, "snapkv"),
    case("tokenizer or prompt, got both", models.scorer, "kvzip", LLAMA, tokenizer=len, prompt=[1]),
    *(case("must be one of", models.scorer, name, LLAMA, windows=5) for name in models.SCORERS),
    *(case(f"be one that {name} watched", finish_another_prompt, name) for name in WATCHING),
    case(
        "settings of snapkv must be left out, got window",
        lambda: compress(models.scorer("snapkv", LLAMA), **HALF, settings={"window": 3}),
    ),
    case(ROTATES, compress, "expected_attention", "gpt_oss", **HALF),
    case(ROTATES, compress, "expected_attention", "minicpm3", **HALF),
    case("dropout must be 0, got 0.5: call `model.eval()`", drop_out),
    *(case(FLAGS, call, mask, 2) for mask in (ZEROS, SHARES)),
    *(case(FLAGS, models.compressed, LLAMA, "full", prompts(2)[0], x) for x in (ZEROS, SHARES)),
    case("of shape (batch, tokens), got (2, 1, 4, 28)", call, torch.ones(2, 1, 4, 28).bool()),
    case(
        "attention_mask must not change for the tokens",
        lambda: LLAMA(IDS[:, :3], attention_mask=torch.ones(2, 27), past_key_values=full()),
    ),
    case("whose states start again when it reads 4 tokens after", ask_jamba),
    case("whose states start again", lambda: models.prefill(jamba(), IDS, chunk=8)),
    case("learned positions for, 32, got 44; repeats by KVzip", repeat_beyond_positions),
    *(
        case("a new token behind the 28 that the cache has seen", ask_nothing_new, *given, **how)
        for *given, how in (
            ("llama", HEX, {}),
            ("llama", "h2o", AGAIN),
            *((kind, "full", {}) for kind in HYBRIDS),
        )
    ),
    *(case("must be 1 in a call of one token", call, UNSEEN, 1, kind) for kind in HYBRIDS),
    case("1 at every token after the prompt", call, UNEVEN, 2, system="h2o", **AGAIN),
    *(case("rearranging rows (beams, several sequences)", beams, name) for name in ("gear", "h2o")),
    case("only a system that evicts can hide what a row", hide_an_ended_row, "llama", "gear"),
    case("only a system that evicts can hide what a row", hide_an_ended_row, "lfm2", "full"),
    *(
        case(says, compress, system, kind, **how)
        for kind, says in (("minicpm3", LATENT), ("gemma4_text", SHARED))
        for system, how in ((HEX, {}), ("gear", {}), ("h2o", AGAIN), ("snapkv>gear", HALF))
    ),
    *(
        case("cached nothing: call `model.eval()`", read_in_training, system, **how)
        for system, how in BUDGETS.items()
    ),
    case("must be a HexConfig, got 'HEX-3'", models.HexTransformersCache, LLAMA.config, "HEX-3"),
    case("bits must be in [1, 8], got 9", models.HexTransformersCache, LLAMA.config, WRONG),
    case("near=True accepts any", models.HexTransformersCache, LLAMA.config, PRESET),
    *(
        case(says, models.DecodingTransformersCache, LLAMA.config, settings, score)
        for settings, score, says in (
            (optimized.DecodingConfig(0), "h2o", "target=0"),
            (optimized.DecodingConfig(9), "h2o", "scope must be 'head' or 'layer', since a layer"),
            (
                DECODING._replace(refinement=optimized.HubSettings()),
                "knorm",
                "must be None with score 'knorm', whose scores are negative, got HubSettings",
            ),
        )
    ),
]


@pytest.mark.parametrize(("ask", "says"), CALLS)
def test_a_call_that_cannot_be_served_is_refused(ask, says):
    with pytest.raises((ValueError, TypeError, NotImplementedError)) as error:
        ask()
    assert says in str(error.value)
