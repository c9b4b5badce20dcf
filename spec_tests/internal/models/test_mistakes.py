"""Mistakes that users make with `compressed`, each with its error message."""

from types import SimpleNamespace

import pytest
import torch

import optimized
from optimized.models import argument_checks as checks
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import attached_model, models, prompts, transformers

IDS = prompts()[0]
TOKENS = IDS.shape[1]


def model_on_meta():
    """Return a model without loaded weights."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(small.configuration("llama"))


CALL: dict = dict(system="snapkv", input_ids=IDS, ratio=0.5)
# What the message says, and what differs from `compressed(model, "snapkv", ids, ratio=0.5)`.
OF_TYPE: dict[str, dict] = {
    "'compression_ratio': the share that is removed is `ratio`": dict(compression_ratio=0.5),
    "'window': settings of snapkv go to settings={'window': ...}": dict(window=16),
    "got 'ratoi': did you mean 'ratio'?": dict(ratoi=0.5),
    "'inputs_embeds': leave it out, since": dict(inputs_embeds=torch.zeros(1, 4, 32)),
    "got 'xyz': options are ratio, keep, interval, protected, exact_layers, refined": dict(xyz=1),
    "must be given: `compressed(model, system, **tokenizer(text": dict(input_ids=None),
    "got a torch.int64 tensor: pass ids after it, `compressed(model, ": dict(system=IDS),
    "got LlamaForCausalLM: pass the model before it": dict(system=small.stock_model("llama")),
    "a dictionary, such as {'window': 16}, got ['window']": dict(settings=["window"]),
    "the tokenizer object of the model as tokenizer, got 'gpt2'": dict(
        system="kvzip", settings={"tokenizer": "gpt2"}
    ),
    "a head keeps, got 10.5: the share that is removed is": dict(ratio=None, keep=10.5),
}
HEAVY: dict = dict(system="h2o", ratio=None, keep=8, interval=4)
OF_VALUE: dict[str, dict] = {
    "got 'kvzip+hubvk': did you mean 'kvzip+hubkv'?": dict(system="kvzip+hubvk"),
    "did you mean 'kivi-8' with settings={'bits': 3}?": dict(system="kivi-3"),
    "must be given one of ratio and keep, got ratio=None and keep=None": dict(ratio=None),
    "must be given one of ratio and keep, got ratio=0.5 and keep=8": dict(keep=8),
    "neither ratio nor keep, got ratio=0.5 and keep=None: it evicts": dict(system="hex-4"),
    "ratio must be at least 0 and below 1, got 1.0: it is the share": dict(ratio=1.0),
    "got (24,), torch.int64: `input_ids[None]` is a batch of one": dict(input_ids=IDS[0]),
    "not empty, got str: `tokenizer(text, return_tensors='pt')`": dict(input_ids="Hello"),
    "got BatchEncoding: unpack what a tokenizer returns": dict(
        input_ids=transformers.BatchEncoding(dict(input_ids=IDS))
    ),
    "got 0 after 1 at position 19: set `tokenizer.padding_side = 'left'`": dict(
        attention_mask=prompts()[1].flip(-1)
    ),
    "of kivi-2 must be one of bits, group, residual, scales, value_bits, got 'window'": dict(
        system="kivi-2", ratio=None, settings={"window": 8}
    ),
    "one of kernel, pooling, window, got 'widow': did you mean": dict(settings={"widow": 8}),
    "got 'snapkv@heads': snapkv has @head, @layer, @model": dict(system="snapkv@heads"),
    "'knorm', 'snapkv', 'streaming_llm', got 'cake': layers": HEAVY | dict(system="cake"),
    "got 'kvzip': it makes the model repeat its prompt": HEAVY | dict(system="kvzip"),
    "interval must be None for 'knorm+hubkv', got 4: negative": HEAVY | dict(system="knorm+hubkv"),
    "chunk must be None with an interval, got 8: the prompt is read": HEAVY | dict(chunk=8),
    "interval must be None for 'hex-4', got 4: codes are not": HEAVY | dict(system="hex-4"),
    "got none: train them with `optimized.models.fastkvzip_gates": dict(system="fastkvzip"),
    "chunk must be None for 'gear', got 8": dict(system="gear", ratio=None, chunk=8),
    "vocabulary, 0 to 60, got 160: is the tokenizer this": dict(input_ids=IDS + 100),
    "1 at tokens, which each row has, and 0 at padding, got values": dict(
        attention_mask=torch.zeros(2, TOKENS).long()
    ),
    "ids of kvzip's request must be in the model's vocabulary, 0 to 60, got 999": dict(
        system="kvzip", settings={"prompt": [1, 999]}
    ),
    "refined.kind must be 'kk', 'kv' or 'vv' for 'h2o', got 'qk'": HEAVY
    | dict(refined=optimized.GraphSettings(8, kind="qk")),
    "h2o with an interval must be left out, got recent": HEAVY | dict(settings={"recent": 5}),
    "must be None for 'kcvt-3', which has no scores to refine, got HubSettings": dict(
        system="kcvt-3", ratio=None, refined=optimized.HubSettings()
    ),
    "settings of graphkv for 'snapkv+graphkv', got settings of hubkv": dict(
        system="snapkv+graphkv", refined=optimized.HubSettings()
    ),
    "which shares the budget among layers itself": dict(
        system="pyramidkv", ratio=None, keep=[4, 4]
    ),
    "must be one number with an interval, got one per layer": HEAVY | dict(keep=[4, 4]),
    "system must evict before '>', got 'gear>kivi-4'": dict(system="gear>kivi-4"),
    "_replace(near=True)` in place of 'hex-3'": dict(system="hex-3", ratio=None),
}
NO_MODEL: dict = {
    "got 'meta-llama/Llama-3.2-1B'": lambda: "meta-llama/Llama-3.2-1B",
    "got LlamaModel: load it with `AutoModelForCausalLM": lambda: small.stock_model("llama").model,
}
UNUSABLE: dict = {"model must have weights, got a model on the device 'meta'": model_on_meta}
LONGER = prompts(4)[0]
LATER: dict = {
    "with the 24 tokens that the cache has seen, got 4 in all": dict(inputs=LONGER[:, TOKENS:]),
    "with the tokens that the cache has seen, got others": dict(inputs=LONGER.flip(1)),
    "seen, padding included, got another: pass the mask to": dict(attention_mask=prompts(4)[1]),
    "have a flag for each of the 28 ids, got 5": dict(attention_mask=torch.ones(2, 5)),
    "must be 1 at the last token of each row, got 0: pad questions": dict(
        attention_mask=torch.ones_like(LONGER) - torch.eye(1, 28).flip(1).long()
    ),
    "must be False over a cache of this package, got True: evicted": dict(
        output_attentions=True, return_dict_in_generate=True
    ),
    "must have the cache's batch size 2, got 3: `cache.batch_repeat_interleave`": dict(
        inputs=torch.cat([LONGER, LONGER[:1]])
    ),
}
POSITIONS: dict = {
    "at 24, got 0: leave position_ids out, or continue from": torch.arange(4)[None],
    "at 24, got 26: tokens are left out; a model called": torch.arange(26, 30)[None],
}


@pytest.mark.parametrize("says", OF_TYPE | OF_VALUE)
def test_a_mistake_is_told_what_is_right(says):
    with pytest.raises(TypeError if says in OF_TYPE else ValueError) as error:
        models.compressed(attached_model("llama"), **CALL | (OF_TYPE | OF_VALUE)[says])
    assert says in str(error.value)


@pytest.mark.parametrize("says", NO_MODEL | UNUSABLE)
def test_what_is_no_model_is_told_what_is_one(says):
    with pytest.raises(TypeError if says in NO_MODEL else ValueError) as error:
        models.compressed((NO_MODEL | UNUSABLE)[says](), "full", IDS)
    assert says in str(error.value)


@pytest.mark.parametrize("says", LATER)
def test_a_mistake_in_the_second_line_is_told_what_is_right(says):
    cache = models.compressed(attached_model("llama"), "full", IDS)
    with pytest.raises(ValueError, match="must") as error:
        attached_model("llama").generate(
            **dict(inputs=LONGER) | LATER[says], past_key_values=cache, max_new_tokens=2
        )
    assert says in str(error.value)


def test_a_scorer_of_ones_own_is_told_what_it_lacks(monkeypatch):
    own = type("Own", (models.Scorer,), {"name": "own"})
    for name, scorer in {"own": own, "nameless": models.Scorer, "no class": CALL}.items():
        monkeypatch.setitem(models.SCORERS, name, scorer)
        with pytest.raises((TypeError, NotImplementedError), match=r"must (be|have|define)"):
            models.compressed(attached_model("llama"), name, IDS, ratio=0.5)


def test_a_second_question_over_the_same_cache_is_told_of_undone():
    cache = models.compressed(attached_model("llama"), **CALL)
    how = dict(past_key_values=cache, max_new_tokens=3, do_sample=False)
    attached_model("llama").generate(LONGER, **how)
    with pytest.raises(ValueError, match=r"got 28 in all: .* use `cache.undone\(\)`"):
        attached_model("llama").generate(LONGER, **how)


def test_ids_on_another_device_are_told_where_to_go():
    embedding = torch.nn.Embedding(2, 2, device="meta")
    model = SimpleNamespace(get_input_embeddings=lambda: embedding)
    with pytest.raises(ValueError, match=r"of the model, meta, got cpu: `input_ids.to"):
        checks.require_same_device(model, IDS)
    vars(model)["_hf_hook"] = "moves them"
    checks.require_same_device(model, IDS)


@pytest.mark.parametrize("says", POSITIONS)
def test_positions_that_do_not_count_on_are_told_why(says):
    cache = models.compressed(attached_model("llama"), "full", IDS)
    with pytest.raises(ValueError, match="position_ids must continue after the tokens") as error:
        attached_model("llama")(
            LONGER[:, TOKENS:], position_ids=POSITIONS[says], past_key_values=cache
        )
    assert says in str(error.value)


def test_a_mask_that_generate_is_not_given_is_missed():
    ids, mask = prompts(4)
    cache = models.compressed(attached_model("llama"), "full", ids[:, :TOKENS], mask[:, :TOKENS])
    with pytest.raises(
        ValueError, match=r"at 19, got 24: they count the padding .*: pass the attention_mask"
    ):
        attached_model("llama").generate(ids, past_key_values=cache, max_new_tokens=2)


def test_attention_that_is_set_afterwards_is_honoured_or_named():
    model = small.new_model("llama")
    cache = models.compressed(model, "full", IDS)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="and again after its attention is changed"):
        model.generate(LONGER, past_key_values=cache, max_new_tokens=2)
    models.attach(model)
    assert len(model(LONGER, output_attentions=True).attentions) == 2
    model.generate(LONGER, past_key_values=models.compressed(model, "full", IDS), max_new_tokens=2)


def test_a_system_is_known_in_capitals():
    assert models.system_named("HEX-3") == models.system_named("hex-3")
    cache = models.compressed(attached_model("llama"), "SnapKV+HubKV", IDS, ratio=0.5)
    assert cache.get_seq_length() == IDS.shape[1]
    assert models.system_named("KVzip+HubKV@head").scope == "head"
