"""A cache belongs to a model and to the ids it has seen; others are refused."""

import pickle
from copy import deepcopy

import pytest
import torch

import optimized
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import (
    VOCABULARY,
    attached_model,
    configuration,
    models,
    new_model,
    prompts,
    transformers,
)

HEX = optimized.HexConfig(density=0.0, block=8, recent=2)
SYSTEMS = ("full", "kvzip+hubkv", "hex", "gear", "h2o interval")
every_system = pytest.mark.parametrize("system", SYSTEMS)
OTHERS = r"input_ids must begin with the tokens that the cache has seen, got others: append new ids"


def compressed(model, system, ids, mask=None):
    """Return a cache of a system that has read the prompt."""
    if system == "h2o interval":
        return models.compressed(model, "h2o", ids, mask, keep=12, interval=4)
    how = dict(ratio=0.5) if system == "kvzip+hubkv" else {}
    return models.compressed(model, HEX if system == "hex" else system, ids, mask, **how)


def generate_three(model, cache, ids, **more):
    """Return the ids after three generated tokens."""
    mask = dict(attention_mask=torch.ones_like(ids)) | more
    return model.generate(ids, past_key_values=cache, max_new_tokens=3, do_sample=False, **mask)


def change_one_id(ids, place):
    """Return a copy of ids with one id changed."""
    ids = ids.clone()
    ids[-1, place] = 2 + (ids[-1, place] - 1) % (VOCABULARY - 2)
    return ids


def swap_two_ids(ids, place):
    """Return a copy of ids with two ids of the last row in each other's place."""
    ids = ids.clone()
    ids[-1, [place, place + 1]] = ids[-1, [place + 1, place]]
    return ids


@every_system
@pytest.mark.parametrize("padded", [False, True])
def test_what_the_cache_has_not_seen_so_is_refused_and_the_rest_goes_on(system, padded):
    model, (ids, mask) = attached_model("llama"), prompts(4)
    mask = mask if padded else torch.ones_like(mask)
    cache = compressed(model, system, ids[:, :-4], mask[:, :-4])
    seen = cache.get_seq_length()
    for changed in (change_one_id(ids, 10), change_one_id(ids, seen - 1), swap_two_ids(ids, 10)):
        with pytest.raises(ValueError, match=OTHERS):
            generate_three(model, cache, changed, attention_mask=mask)
    with pytest.raises(ValueError, match=f"must be the new ids alone, got the {seen} in the cache"):
        model(input_ids=ids, past_key_values=cache)
    with pytest.raises(ValueError, match="a cache that this model filled, got one of another"):
        generate_three(other_model(), cache, ids, attention_mask=mask)
    assert cache.get_seq_length() == seen
    blank = ids.masked_fill(mask == 0, 5)  # ids at padding do not matter
    again, same = deepcopy(cache), models.attach(new_model("llama"))
    answer = generate_three(model, cache, blank, attention_mask=mask)
    assert_equal(generate_three(same, again, ids, attention_mask=mask)[:, -3:], answer[:, -3:])
    more = torch.cat([answer, ids[:, :4]], 1)  # a second turn
    flags = torch.cat([mask, torch.ones(2, 7).long()], 1)
    with pytest.raises(ValueError, match=OTHERS):
        generate_three(model, cache, change_one_id(more, -6), attention_mask=flags)
    answer = generate_three(model, cache, more, attention_mask=flags)
    assert answer.shape[1] == more.shape[1] + 3


def other_model():
    """Return an attached model with other weights."""
    torch.manual_seed(5)
    config = configuration("llama")
    return models.attach(transformers.AutoModelForCausalLM.from_config(config).eval())


def test_new_ids_alone_are_taken_as_they_are():
    """The mask covers the tokens in the cache as well."""
    model, ids = attached_model("llama"), prompts(30)[0]
    cache = compressed(model, "kvzip+hubkv", ids[:, :24])
    with cache.undone():
        whole = generate_three(model, cache, ids)
    behind = generate_three(model, cache, ids[:, 24:], attention_mask=torch.ones_like(ids))
    assert_equal(behind[:, -3:], whole[:, -3:])


CHANGES = dict(
    loaded=lambda model: model.load_state_dict({n: 2 * x for n, x in model.state_dict().items()}),
    merged=lambda model: model.lm_head.weight.data.mul_(2),  # as `peft` does
    assigned=lambda model: setattr(model.lm_head.weight, "data", 2 * model.lm_head.weight.data),
    replaced=lambda model: setattr(
        model.lm_head, "weight", torch.nn.Parameter(2 * model.lm_head.weight.detach())
    ),
    one_row=lambda model: model.model.embed_tokens.weight[3].detach().mul_(2),  # not in the sample
    undone=lambda model: [  # a later sample is the first one
        (CHANGES["one_row"](model), model.lm_head.weight.detach().mul_(x), models.attach(model))
        for x in (2.0, 0.5)
    ],
)
COPIES = (lambda model: model.double().float(), deepcopy, lambda x: pickle.loads(pickle.dumps(x)))


@pytest.mark.parametrize("new", [1, 2, 20])
@pytest.mark.parametrize("change", CHANGES)
def test_a_cache_of_earlier_weights_is_refused(change, new):
    """A model that is moved, copied or pickled is the same, until a weight changes."""
    model, (ids, _) = models.attach(new_model("llama")), prompts(2)
    cache = compressed(model, "kvzip+hubkv", ids[:, :-2])
    model = COPIES[min(new, 3) - 1](model)

    def ask(cache):
        if new > 2:
            return generate_three(model, cache, ids)
        return model(ids[:, -2:][:, :new], past_key_values=cache)

    ask(deepcopy(cache))
    CHANGES[change](model)
    if (change, new) != ("merged", 1):  # no trace, and a call of one token samples no numbers
        with pytest.raises(ValueError, match="weights that were changed since: compress the prom"):
            ask(cache)
        ask(compressed(model, "kvzip+hubkv", ids[:, :-2]))
