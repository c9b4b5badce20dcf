"""Mistakes that users make with `compressed`, each with its error message."""

import pytest
import torch

import optimized
from optimized.models import argument_checks as checks
from spec_tests.internal.models.random_model import (
    attached_model,
    configuration,
    generate,
    models,
    new_model,
    prompts,
    stock_model,
    transformers,
)

IDS = prompts()[0]
TOKENS = IDS.shape[1]
IMAGE = 7


def model_on_meta():
    """Return a model without loaded weights."""
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(configuration("llama"))


def sharded_model():
    """Return a model as `tp_plan` marks it."""
    model = new_model("llama")
    vars(model)["_tp_size"] = 2
    return model


def model_with_images():
    """Return a model whose configuration has a placeholder token for images."""
    config = configuration("llama", image_token_id=IMAGE)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


MISTAKES = {
    "the wrapper's word for the ratio": (
        dict(system="snapkv", compression_ratio=0.5),
        TypeError,
        "got 'compression_ratio': the share that is removed is `ratio`",
    ),
    "a setting of the scorer beside the options": (
        dict(system="snapkv", ratio=0.5, window=16),
        TypeError,
        "got 'window': settings of snapkv go to settings={'window': ...}",
    ),
    "an option misspelt": (
        dict(system="snapkv", ratoi=0.5),
        TypeError,
        "got 'ratoi': did you mean 'ratio'?",
    ),
    "an input that is made of the ids": (
        dict(system="snapkv", ratio=0.5, inputs_embeds=torch.zeros(1, 4, 32)),
        TypeError,
        "got 'inputs_embeds': leave it out, since `compressed` reads ids",
    ),
    "something else": (
        dict(system="snapkv", ratio=0.5, xyz=1),
        TypeError,
        "got 'xyz': options are ratio, keep, interval, refined, settings, chunk, reading, kv",
    ),
    "a refinement misspelt": (
        dict(system="kvzip+hubvk", ratio=0.5),
        ValueError,
        "got 'kvzip+hubvk': did you mean 'kvzip+hubkv'?",
    ),
    "a scorer misspelt": (
        dict(system="snap-kv", ratio=0.5),
        ValueError,
        "got 'snap-kv': did you mean 'snapkv'?",
    ),
    "no budget": (
        dict(system="kvzip+hubkv"),
        ValueError,
        "'kvzip+hubkv' must be given one of ratio and keep, got ratio=None and keep=None",
    ),
    "two budgets": (
        dict(system="snapkv", ratio=0.5, keep=8),
        ValueError,
        "'snapkv' must be given one of ratio and keep, got ratio=0.5 and keep=8",
    ),
    "a budget of what evicts nothing": (
        dict(system="hex-4", ratio=0.5),
        ValueError,
        "must be given neither ratio nor keep, got ratio=0.5 and keep=None: it evicts nothing",
    ),
    "all of it removed": (
        dict(system="snapkv", ratio=1.0),
        ValueError,
        "ratio must be at least 0 and below 1, got 1.0: it is the share that is removed",
    ),
    "no ids": (
        dict(system="snapkv", ratio=0.5, input_ids=None),
        TypeError,
        "must be given: `compressed(model, system, **tokenizer(text, return_tensors='pt'))`",
    ),
    "ids without a batch": (
        dict(system="snapkv", ratio=0.5, input_ids=IDS[0]),
        ValueError,
        "got (24,), torch.int64: `input_ids[None]` is a batch of one prompt",
    ),
    "a text in place of its ids": (
        dict(system="snapkv", ratio=0.5, input_ids="Hello"),
        ValueError,
        "not empty, got str: `tokenizer(text, return_tensors='pt')` returns such",
    ),
    "a tokenizer's dictionary that is not unpacked": (
        dict(system="snapkv", ratio=0.5, input_ids=transformers.BatchEncoding(dict(input_ids=IDS))),
        ValueError,
        "got BatchEncoding: unpack what a tokenizer returns, `compressed(model, system, **inputs)`",
    ),
    "a mask in place of ids": (
        dict(system="snapkv", ratio=0.5, input_ids=IDS.bool()),
        ValueError,
        "(batch, tokens), not empty, got (2, 24), torch.bool",
    ),
    "no system, ids in its place": (
        dict(system=IDS, ratio=0.5),
        TypeError,
        "got a torch.int64 tensor: pass ids after it, `compressed(model, 'kvzip+hubkv', ids, rat",
    ),
    "no system, inputs in its place": (
        dict(system=dict(input_ids=IDS), ratio=0.5),
        TypeError,
        "got dict: pass inputs after it, `compressed(model, 'kvzip+hubkv', **inputs, ratio=0.75)`",
    ),
    "the model in place of the system": (
        dict(system=stock_model("llama"), ratio=0.5),
        TypeError,
        "a Scorer or a HexConfig, got LlamaForCausalLM: pass the model before it",
    ),
    "padding on the right": (
        dict(system="snapkv", ratio=0.5, attention_mask=prompts()[1].flip(-1)),
        ValueError,
        "left of each row, got 0 after 1 at position 19: set `tokenizer.padding_side = 'left'`",
    ),
    "a reading that there is not": (
        dict(system="snapkv", ratio=0.5, reading="literal"),
        ValueError,
        "reading must be one of 'letter', 'remedied', got 'literal'",
    ),
    "settings of nothing": (
        dict(system="kivi-2", settings={"window": 8}),
        ValueError,
        "settings of kivi-2 must be left out, got window",
    ),
    "a setting misspelt": (
        dict(system="snapkv", ratio=0.5, settings={"widow": 8}),
        ValueError,
        "snapkv must be one of kernel, pooling, window, got 'widow': did you mean 'window'?",
    ),
    "settings without values": (
        dict(system="snapkv", ratio=0.5, settings=["window"]),
        TypeError,
        "settings must be a dictionary, such as {'window': 16}, got ['window']",
    ),
    "a setting in quotes": (
        dict(system="snapkv", ratio=0.5, settings={"window": "8"}),
        TypeError,
        "window must be an integer, got '8'",
    ),
    "a tokenizer's name": (
        dict(system="kvzip", ratio=0.5, settings={"tokenizer": "gpt2"}),
        TypeError,
        "settings of kvzip must have the tokenizer object of the model as tokenizer, got 'gpt2'",
    ),
    "a refinement's name in place of its settings": (
        dict(system="snapkv", ratio=0.5, refined="hubkv"),
        TypeError,
        "got 'hubkv': settings are given as `HubSettings(gamma=0.9)`, and a name behind the scor",
    ),
    "a store misspelt": (
        dict(system="snapkv>kivi4", ratio=0.5),
        ValueError,
        "kivi-2, kivi-4, gear, got 'kivi4': did you mean 'kivi-4'?",
    ),
    "a list that is too short": (
        dict(system="snapkv", keep=[8]),
        ValueError,
        "keep must have one entry for each of 2 layers, got 1",
    ),
    "a scope misspelt": (
        dict(system="snapkv@heads", ratio=0.5),
        ValueError,
        "got 'snapkv@heads': snapkv has @head, @layer, @model",
    ),
    "half an entry": (
        dict(system="snapkv", keep=10.5),
        TypeError,
        "a head keeps, got 10.5: the share that is removed is",
    ),
    "a scorer that looks back, again and again": (
        dict(system="snapkv", keep=8, interval=4),
        ValueError,
        "an interval must be one of 'fastkvzip', 'h2o', 'knorm', 'streaming_llm', got 'snapkv'",
    ),
    "an interval of nothing": (
        dict(system="h2o", keep=8, interval=0),
        ValueError,
        "interval must be >= 1, got 0",
    ),
    "a refinement of negative scores, again and again": (
        dict(system="knorm+hubkv", keep=8, interval=4),
        ValueError,
        "interval must be None for 'knorm+hubkv', got 4: negative scores are not refined",
    ),
    "pieces of what is compressed again and again": (
        dict(system="h2o", keep=8, interval=4, chunk=8),
        ValueError,
        "chunk must be None with an interval, got 8: the prompt is read in one call",
    ),
    "codes again and again": (
        dict(system="hex-4", keep=8, interval=4),
        ValueError,
        "interval must be None for 'hex-4', got 4: codes are not compressed again",
    ),
    "gates that nobody has trained": (
        dict(system="fastkvzip", keep=8),
        ValueError,
        "got none: train them with `optimized.models.fastkvzip_gates.learn_gates(model, prompts)`",
    ),
    "the implementation by its name": (
        dict(system="snapkv", ratio=0.5, kv="reference"),
        TypeError,
        "kv must be the module `reference` or `optimized`, got 'reference'",
    ),
    "pieces of what is read at once": (
        dict(system="gear", chunk=8),
        ValueError,
        "chunk must be None for 'gear', got 8: the prompt is read in one call",
    ),
    "ids of another tokenizer": (
        dict(system="full", input_ids=IDS + 100),
        ValueError,
        "vocabulary, 0 to 60, got 160: is the tokenizer this model's?",
    ),
    "a mask of padding alone": (
        dict(system="full", attention_mask=torch.zeros(2, TOKENS).long()),
        ValueError,
        "attention_mask must be 1 at tokens, which each row has, and 0 at padding, got values of 0",
    ),
    "another model's tokenizer": (
        dict(system="kvzip", ratio=0.5, settings={"prompt": [1, 999]}),
        ValueError,
        "ids of kvzip's request must be in the model's vocabulary, 0 to 60, got 999",
    ),
    "edges of queries that are not stored": (
        dict(system="h2o", keep=8, interval=4, refined=optimized.GraphSettings(8, kind="qk")),
        ValueError,
        "refined.kind must be 'kk', 'kv' or 'vv' for 'h2o', got 'qk'",
    ),
    "a mask of numpy": (
        dict(system="full", attention_mask=prompts()[1].numpy()),
        TypeError,
        "attention_mask must be a tensor, got ndarray",
    ),
    "ids without data": (
        dict(system="full", input_ids=IDS.to("meta")),
        ValueError,
        "on a device that holds data, got meta: `input_ids.to(model.device)`",
    ),
    "a number in place of a system": (
        dict(system=3),
        TypeError,
        "system must be a name, a Scorer or a HexConfig, got 3",
    ),
    "a part of a refinement's name": (
        dict(system="snapkv+hub", ratio=0.5),
        ValueError,
        "system must be a known name, got 'snapkv+hub'",
    ),
    "a budget of nothing": (
        dict(system="snapkv", keep=0),
        ValueError,
        "keep must be >= 1, got 0",
    ),
    "settings of what is compressed again and again": (
        dict(system="h2o", keep=5, interval=4, settings={"recent": 5}),
        ValueError,
        "settings of h2o with an interval must be left out, got recent",
    ),
    "a refinement without scores": (
        dict(system="kcvt-3", refined=optimized.HubSettings()),
        ValueError,
        "refined must be None for 'kcvt-3', which has no scores to refine, got HubSettings",
    ),
    "a refinement that the name contradicts": (
        dict(system="snapkv+graphkv", ratio=0.5, refined=optimized.HubSettings()),
        ValueError,
        "refined must be settings of graphkv for 'snapkv+graphkv', got settings of hubkv",
    ),
    "all of one layer removed": (
        dict(system="snapkv", ratio=[0.5, 1.0]),
        ValueError,
        "ratio must be at least 0 and below 1, got 1.0",
    ),
    "a budget for each layer where the scorer shares it": (
        dict(system="pyramidkv", keep=[4, 4]),
        ValueError,
        "one number for 'pyramidkv', which shares the budget among layers itself",
    ),
    "a budget for each layer, again and again": (
        dict(system="h2o", keep=[4, 4], interval=4),
        ValueError,
        "ratio and keep must be one number with an interval, got one per layer",
    ),
    "codes of codes": (
        dict(system="gear>kivi-4"),
        ValueError,
        "system must evict before '>', got 'gear>kivi-4'",
    ),
    "codes of what evicts again and again": (
        dict(system="h2o>kivi-4", keep=4, interval=4),
        ValueError,
        "interval must be None for 'h2o>kivi-4'",
    ),
    "heads too narrow for the paper's density": (
        dict(system="hex-3"),
        ValueError,
        "`optimized.hex_preset('HEX-3')._replace(near=True)` in place of 'hex-3' for the nearest",
    ),
}
MODELS = {
    "a model's name": (
        lambda: "meta-llama/Llama-3.2-1B",
        TypeError,
        "got 'meta-llama/Llama-3.2-1B'",
    ),
    "a model without a head": (
        lambda: stock_model("llama").model,
        TypeError,
        "got LlamaModel: load it with `AutoModelForCausalLM.from_pretrained`",
    ),
    "the class of a model": (
        lambda: transformers.LlamaForCausalLM,
        TypeError,
        "LlamaForCausalLM'>: load it with `AutoModelForCausalLM.from_pretrained`",
    ),
    "a part of a model": (
        lambda: sharded_model(),
        ValueError,
        "model must be whole in one process, got weights that are sharded over ranks",
    ),
    "a model without weights": (
        lambda: model_on_meta(),
        ValueError,
        "model must have weights, got a model on the device 'meta'",
    ),
}
MORE = prompts(4)[0]
LATER = {
    "the new ids alone": (
        dict(inputs=MORE[:, TOKENS:]),
        "input_ids must begin with the 24 tokens that the cache has seen, got 4 in all: pass",
    ),
    "another text": (
        dict(inputs=MORE.flip(1)),
        "input_ids must begin with the tokens that the cache has seen, got others: append",
    ),
    "a mask that `compressed` was not given": (
        dict(attention_mask=prompts(4)[1]),
        "cache has seen, padding included, got another: pass the mask to `compressed`, too",
    ),
    "a mask that `compressed` was not given, and no question": (
        dict(inputs=IDS, attention_mask=prompts()[1]),
        "cache has seen, padding included, got another: pass the mask to `compressed`, too",
    ),
    "a mask of another length": (
        dict(attention_mask=torch.ones(2, 5)),
        "attention_mask must have a flag for each of the 28 ids, got 5",
    ),
    "questions padded on the right": (
        dict(attention_mask=torch.ones_like(MORE) - torch.eye(1, 28).flip(1).long()),
        "attention_mask must be 1 at the last token of each row, got 0: pad questions of different",
    ),
    "weights of attention": (
        dict(output_attentions=True, return_dict_in_generate=True),
        "output_attentions must be False over a cache of this package, got True: evicted",
    ),
    "no cache, beside a cache": (
        dict(use_cache=False),
        "use_cache must be True with a cache in past_key_values, got False: leave one of the two",
    ),
    "another cache beside this one": (
        dict(cache_implementation="static"),
        "`cache_implementation` (used to initialize certain caches) and `past_key_values`",
    ),
    "another batch": (
        dict(inputs=torch.cat([MORE, MORE[:1]])),
        "input_ids must have the cache's batch size 2, got 3: `cache.batch_repeat_interleave`",
    ),
}
POSITIONS = {
    "from 0": (torch.arange(4)[None], "at 24, got 0: leave position_ids out, or continue from"),
    "packed": (torch.tensor([[24, 25, 0, 1]]), "at 26, got 0: sequences that are packed into one"),
    "behind a gap": (
        torch.arange(26, 30)[None],
        "at 24, got 26: tokens are left out; a model called",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_what_is_right(mistake):
    inputs, kind, says = MISTAKES[mistake]
    with pytest.raises(kind) as told:
        models.compressed(attached_model("llama"), **dict(input_ids=IDS) | inputs)
    assert says in str(told.value)


@pytest.mark.parametrize("mistake", MODELS)
def test_what_is_no_model_is_told_what_is_one(mistake):
    make, kind, says = MODELS[mistake]
    with pytest.raises(kind) as told:
        models.compressed(make(), "full", IDS)
    assert says in str(told.value)


@pytest.mark.parametrize("mistake", LATER)
def test_a_mistake_in_the_second_line_is_told_what_is_right(mistake):
    how, says = LATER[mistake]
    cache = models.compressed(attached_model("llama"), "full", IDS)
    with pytest.raises(ValueError, match=r"must|unsupported") as told:
        attached_model("llama").generate(
            **dict(inputs=MORE) | how, past_key_values=cache, max_new_tokens=2
        )
    assert says in str(told.value)


def test_a_second_question_over_the_same_cache_is_told_of_undone():
    cache = models.compressed(attached_model("llama"), "snapkv", IDS, ratio=0.5)
    how = dict(past_key_values=cache, max_new_tokens=3, do_sample=False)
    attached_model("llama").generate(MORE, **how)
    with pytest.raises(ValueError, match=r"got 28 in all: .* use `cache.undone\(\)`"):
        attached_model("llama").generate(MORE, **how)


class Elsewhere:
    """A model on the meta device, which holds no data."""

    def get_input_embeddings(self):
        """Return the embedding."""
        return torch.nn.Embedding(2, 2, device="meta")


def test_ids_on_another_device_are_told_where_to_go():
    model = Elsewhere()
    with pytest.raises(ValueError, match=r"of the model, meta, got cpu: `input_ids.to"):
        checks.require_same_device(model, IDS)
    vars(model)["_hf_hook"] = "moves them"
    checks.require_same_device(model, IDS)


@pytest.mark.parametrize("mistake", POSITIONS)
def test_positions_that_do_not_count_on_are_told_why(mistake):
    places, says = POSITIONS[mistake]
    cache = models.compressed(attached_model("llama"), "full", IDS)
    with pytest.raises(ValueError, match="position_ids must continue after the tokens") as told:
        attached_model("llama")(MORE[:, TOKENS:], position_ids=places, past_key_values=cache)
    assert says in str(told.value)


def test_a_mask_that_generate_is_not_given_is_missed():
    ids, mask = prompts(4)
    cache = models.compressed(attached_model("llama"), "full", ids[:, :TOKENS], mask[:, :TOKENS])
    with pytest.raises(
        ValueError, match=r"at 19, got 24: they count the padding .*: pass the attention_mask"
    ):
        attached_model("llama").generate(ids, past_key_values=cache, max_new_tokens=2)


def test_a_model_that_is_converted_afterwards_does_not_fit_its_cache():
    model = new_model("llama").half().float()  # half precision changes no number
    cache = models.compressed(model, "full", IDS)
    with pytest.raises(ValueError, match=r"type of the cache, torch.float32, got torch.float16"):
        model.half()(MORE[:, TOKENS:], past_key_values=cache)


def test_attention_that_is_set_afterwards_is_honoured_or_named():
    model = new_model("llama")
    cache = models.compressed(model, "full", IDS)
    model.set_attn_implementation("eager")
    with pytest.raises(ValueError, match="and again after its attention is changed"):
        model.generate(MORE, past_key_values=cache, max_new_tokens=2)
    models.attach(model)
    assert len(model(MORE, output_attentions=True).attentions) == 2
    model.generate(MORE, past_key_values=models.compressed(model, "full", IDS), max_new_tokens=2)


@pytest.mark.parametrize("layers", [1, 3])
def test_a_cache_of_another_depth_is_refused(layers):
    settings = optimized.HexConfig(density=0.0, block=8, recent=2)
    cache = models.HexTransformersCache(configuration("llama", num_hidden_layers=layers), settings)
    with pytest.raises(ValueError, match=f"must have 2 layers, as the model has, got {layers}"):
        attached_model("llama").generate(MORE, past_key_values=cache, max_new_tokens=2)


def test_a_model_whose_weights_are_put_away_is_served():
    accelerate = pytest.importorskip("accelerate")
    model = new_model("llama")
    expected = generate(model, MORE, torch.ones_like(MORE))
    model = accelerate.cpu_offload(model, torch.device("cpu"))
    cache = models.compressed(model, "full", IDS)
    assert torch.equal(generate(model, MORE, torch.ones_like(MORE), cache), expected)


@pytest.mark.parametrize("name", ["compressed", "prefill"])
def test_ids_where_an_image_stands_are_no_text(name):
    model, ids = model_with_images(), IDS.clone()
    ids[0, 3] = IMAGE
    ask = dict(compressed=lambda: models.compressed(model, "snapkv", ids, ratio=0.5))
    ask["prefill"] = lambda: models.prefill(models.attach(model), ids)
    with pytest.raises(ValueError, match="must be text, got the model's image_token_id 7"):
        ask[name]()
    ids[ids == IMAGE] = IMAGE + 1
    ask[name]()


def test_a_system_is_known_in_capitals():
    assert models.system_named("HEX-3") == models.system_named("hex-3")
    cache = models.compressed(attached_model("llama"), "SnapKV+HubKV", IDS, ratio=0.5)
    assert cache.get_seq_length() == IDS.shape[1]
    assert models.system_named("KVzip+HubKV@head").scope == "head"
