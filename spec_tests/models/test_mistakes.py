"""Mistakes that users make with `compressed`, each with the sentence that helps."""

import pytest
import torch

from spec_tests.models.random_model import attached, configuration, models, prompts, transformers

IDS = prompts()[0]
IMAGE = 7


def with_images():
    """A model whose tokenizer has a token where an image stands."""
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
        "got 'inputs_embeds': `compressed` makes its own, and reads ids",
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
        "'hex-4' must be given neither ratio nor keep, got ratio=0.5 and keep=None",
    ),
    "all of it removed": (
        dict(system="snapkv", ratio=1.0),
        ValueError,
        "ratio must be below 1, got 1: it is the share that is removed",
    ),
    "a ratio in percent": (
        dict(system="snapkv", ratio=75.0),
        ValueError,
        "ratio must be in [0, 1], got 75.0",
    ),
    "no ids": (
        dict(system="snapkv", ratio=0.5, input_ids=None),
        TypeError,
        "input_ids must be given: `compressed(model, system, **tokenizer(text))`",
    ),
    "ids without a batch": (
        dict(system="snapkv", ratio=0.5, input_ids=IDS[0]),
        ValueError,
        "input_ids must be integers of shape (batch, tokens), not empty, got (24,), torch.int64",
    ),
    "a tokenizer's lists": (
        dict(system="snapkv", ratio=0.5, input_ids=IDS.tolist()),
        ValueError,
        "input_ids must be integers of shape (batch, tokens), not empty, got list",
    ),
    "padding on the right": (
        dict(system="snapkv", ratio=0.5, attention_mask=prompts()[1].flip(-1)),
        ValueError,
        "attention_mask must be false on the left of a row only",
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
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_what_is_right(mistake):
    inputs, kind, says = MISTAKES[mistake]
    with pytest.raises(kind) as told:
        models.compressed(attached("llama"), **dict(input_ids=IDS) | inputs)
    assert says in str(told.value)


@pytest.mark.parametrize("name", ["compressed", "prefill"])
def test_ids_where_an_image_stands_are_no_text(name):
    model, ids = with_images(), IDS.clone()
    ids[0, 3] = IMAGE
    ask = dict(compressed=lambda: models.compressed(model, "snapkv", ids, ratio=0.5))
    ask["prefill"] = lambda: models.prefill(models.attach(model), ids)
    with pytest.raises(ValueError, match="must be text, got the model's image_token_id 7"):
        ask[name]()
    ids[ids == IMAGE] = IMAGE + 1
    ask[name]()


def test_a_system_is_known_in_capitals():
    assert models.system_named("HEX-3") == models.system_named("hex-3")
    cache = models.compressed(attached("llama"), "SnapKV+HubKV", IDS, ratio=0.5)
    assert cache.get_seq_length() == IDS.shape[1]
    assert models.system_named("KVzip+HubKV@head").scope == "head"
