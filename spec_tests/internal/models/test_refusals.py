"""Models and calls that the plug-in refuses, each with one clear sentence."""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import optimized
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import attached_model, generate, models, transformers
from spec_tests.internal.models.test_laws import HEX

IDS, MASK = small.prompts()
ONES = torch.ones_like(MASK)
AGAIN = dict(keep=9, interval=4)
DECODING = optimized.DecodingConfig(10, 4, "layer")


def from_config(kind: str, attn_implementation: str | None = None, **overrides):
    """Return a model with the random weights of `transformers`."""
    how = dict(attn_implementation=attn_implementation)
    return transformers.AutoModelForCausalLM.from_config(
        small.configuration(kind, **overrides), **how
    )


def test_models_outside_the_table_of_architectures_are_refused():
    sizes = dict(d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2, vocab_size=20)
    t5 = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes))
    with pytest.raises(ValueError, match="a decoder alone, got 't5', an encoder-decoder"):
        models.attach(t5)
    with pytest.raises(ValueError, match="got 'gemma3_text', whose attention differs by"):
        models.attach(from_config("gemma3_text", use_bidirectional_attention=True))


def test_a_model_whose_adapter_brings_its_own_cache_is_refused():
    learned = SimpleNamespace(is_prompt_learning=True, peft_type="PREFIX_TUNING")
    model = SimpleNamespace(config=small.configuration("llama"), active_peft_config=learned)
    with pytest.raises(ValueError, match=r"no adapter that learns a prompt.*got PREFIX_TUNING"):
        models.attach(model)


LLAMA = attached_model("llama")
HYBRIDS = ("lfm2", "qwen3_5_text")


def full(kind: str = "llama"):
    """Return the cache of the prompts."""
    return models.prefill(attached_model(kind), IDS, MASK).cache


def compress(system, kind: str = "llama", **how):
    """Return the cache of the unpadded prompts."""
    return models.compressed(attached_model(kind), system, IDS, **how)


def call(mask, extra: int = 4, kind: str = "llama", system="full", **how):
    """Call a model with a mask and `extra` tokens behind the prompt that a system has read."""
    ids, cache = small.prompts(extra)[0], compress(system, kind, **how)
    new = ids[:, cache.get_seq_length() :]
    return attached_model(kind)(new, attention_mask=mask, past_key_values=cache)


def ask_nothing_new(kind: str, system, **how):
    """Generate from the ids that a system has read, the last four in one call."""
    (ids, _), model, cache = small.prompts(4), attached_model(kind), compress(system, kind, **how)
    model(ids[:, cache.get_seq_length() :], past_key_values=cache)
    return generate(model, ids, torch.ones_like(ids), cache)


def ask_only_the_name():
    """Generate with the name of our attention, and nothing else of `attach`."""
    model = from_config("llama", attn_implementation=LLAMA.config._attn_implementation)
    return generate(model, IDS, ONES, models.HexTransformersCache(LLAMA.config, HEX))


def read_in_training(system: str, **how):
    """Compress with a model that caches nothing, since it checkpoints gradients."""
    model = models.attach(small.new_model("llama"))
    model.activation_checkpointing_enable()
    return models.compressed(model.train(), system, IDS, MASK, **how)


def beams(system: str):
    """Search with beams over a cache that cannot rearrange its rows."""
    return generate(LLAMA, IDS, ONES, compress(system, **BUDGETS[system]), num_beams=2)


def drop_out():
    """Read a prompt with dropout."""
    config = small.configuration("llama", attention_dropout=0.5)
    model = models.attach(transformers.AutoModelForCausalLM.from_config(config)).train()
    return models.prefill(model, IDS)


def ask_jamba():
    """Ask a model whose states begin anew a question of several tokens behind a prompt."""
    sizes = dict(attn_layer_period=2, attn_layer_offset=1, num_experts=1, head_dim=8)
    model, ids = small.new_model("jamba", use_mamba_kernels=False, **sizes), small.prompts(4)[0]
    return generate(model, ids, torch.ones_like(ids), models.compressed(model, "full", IDS))


def finish_another_prompt(name: str):
    """Score a prompt that the scorer did not watch, after one that it did."""
    scorer = models.scorer(name, LLAMA)
    scorer.finish(models.prefill(LLAMA, IDS.flip(1), watch=[scorer.watch]), 20)
    return scorer.finish(models.prefill(LLAMA, IDS), 20)


def hide_an_ended_row(kind: str, system: str):
    """Hide what a row said after its end."""
    ids, mask = small.prompts(3)[0], torch.ones(2, small.TOKENS + 3).long()
    mask[0, small.TOKENS - 2 : small.TOKENS] = 0
    return generate(attached_model(kind), ids, mask, compress(system, kind))


def ask_for_candidates(kind: str, system):
    """Generate from a cache that cannot remove tokens, with candidates from the prompt."""
    model, cache = attached_model(kind), compress(system, kind)
    return generate(model, IDS, ONES, cache, prompt_lookup_num_tokens=2)


def case(says: str, ask: Callable[..., object], *given, **how):
    """Return a call that is refused, and a part of the message."""
    return pytest.param(partial(ask, *given, **how), says, id=says[:60])


UNATTACHED = "attend through this package over a cache of it"
LOOKED = "prompt-lookup decoding do, is not supported"
FLAGS = "1 at tokens, which each row has, and 0 at padding, got values of"
ROTATES = "rotate its projected queries as Llama does, over the whole width and in halves, for "
LATENT = "got multi-head latent attention, which caches one row for all heads"
PRESET = optimized.hex_preset("HEX-3")
SHARED = "some of whose layers attend to the keys of another"
ZEROS, SHARES = torch.zeros(2, 26), torch.tensor([0.5] + [1] * 25).expand(2, -1)
UNSEEN = torch.arange(50).view(2, 25) < 49
UNEVEN = torch.arange(52).view(2, 26) != 23  # a question that is padded in one row
HALF: dict = dict(ratio=0.5)
WATCHING = ("h2o", "snapkv", "expected_attention")
BUDGETS: dict[str, dict] = {"gear": {}, "h2o": AGAIN}
CALLS = [
    case(UNATTACHED, lambda: generate(small.stock_model("llama"), IDS, MASK, full())),
    case(UNATTACHED, lambda: generate(small.stock_model("minicpm3"), IDS, MASK, full("minicpm3"))),
    case("got only the name of it", ask_only_the_name),
    *(
        case(LOOKED, ask_for_candidates, kind, system)
        for kind, system in [("gemma2", "full"), ("lfm2", "full"), ("llama", "gear")]
    ),
    case(
        "must leave the 24 tokens of the compressed prompt, got -1",
        lambda: compress("knorm", **HALF).crop(-1),
    ),
    case(
        "kept[0] must be False at padding",
        lambda: full().evict(torch.ones(2, 2, 2, small.TOKENS).bool()),
    ),
    case(
        "got an empty EvictionCache, of which nothing would be",
        lambda: generate(LLAMA, IDS, MASK, models.EvictionCache(LLAMA.config)),
    ),
    *(case(f"be one that {name} watched", finish_another_prompt, name) for name in WATCHING),
    case(ROTATES, compress, "expected_attention", "gpt_oss", **HALF),
    case(ROTATES, compress, "expected_attention", "minicpm3", **HALF),
    case("chunk must be >= 1, got 0", models.prefill, LLAMA, IDS, chunk=0),
    case("dropout must be 0, got 0.5: call `model.eval()`", drop_out),
    case(FLAGS, call, ZEROS, 2),
    case(FLAGS, models.compressed, LLAMA, "full", small.prompts(2)[0], SHARES),
    case("of shape (batch, tokens), got (2, 1, 4, 28)", call, torch.ones(2, 1, 4, 28).bool()),
    case(
        "attention_mask must not change for the tokens",
        lambda: LLAMA(IDS[:, :3], attention_mask=torch.ones(2, 27), past_key_values=full()),
    ),
    case("whose states start again when it reads 4 tokens after", ask_jamba),
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
    case("cached nothing: call `model.eval()`", read_in_training, "snapkv", **HALF),
    case("must be a HexConfig, got 'HEX-3'", models.HexTransformersCache, LLAMA.config, "HEX-3"),
    case("near=True accepts any", models.HexTransformersCache, LLAMA.config, PRESET),
    *(
        case(says, models.DecodingTransformersCache, LLAMA.config, settings, score)
        for settings, score, says in (
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
