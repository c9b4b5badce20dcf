"""A cache belongs to a model and to the ids it has seen; others are refused."""

import pickle
from copy import deepcopy

import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import VOCABULARY, generate, models, new_model, prompts
from spec_tests.internal.models.test_laws import attached, new, read

SYSTEMS = ("full", "kvzip+hubkv", "hex", "gear", "h2o, again")
OTHERS = r"input_ids must begin with the tokens that the cache has seen, got others: append new ids"


def change_one_id(ids, position):
    """Return a copy of ids with one id changed."""
    ids = ids.clone()
    ids[-1, position] = 2 + (ids[-1, position] - 1) % (VOCABULARY - 2)
    return ids


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("padded", [False, True])
def test_what_the_cache_has_not_seen_so_is_refused_and_the_rest_goes_on(system, padded):
    model, other, (ids, mask) = attached("llama"), attached("gemma2"), prompts(4)
    mask = mask if padded else torch.ones_like(mask)
    cache = read("llama", system, ids[:, :-4], mask[:, :-4])
    seen = cache.get_seq_length()
    for changed in (change_one_id(ids, 10), change_one_id(ids, seen - 1)):
        with pytest.raises(ValueError, match=OTHERS):
            generate(model, changed, mask, cache)
    with pytest.raises(ValueError, match=f"must be the new ids alone, got the {seen} in the cache"):
        model(input_ids=ids, past_key_values=cache)
    with pytest.raises(ValueError, match="a cache that this model filled, got one of another"):
        generate(other, ids, mask, cache)
    assert cache.get_seq_length() == seen
    blank = ids.masked_fill(mask == 0, 5)  # ids at padding do not matter
    again, same = deepcopy(cache), models.attach(new("llama"))
    answer = generate(model, blank, mask, cache)
    assert_equal(generate(same, ids, mask, again)[:, -8:], answer[:, -8:])
    longer = torch.cat([answer, ids[:, :4]], 1)  # a second turn
    flags = torch.cat([mask, torch.ones(2, 12).long()], 1)
    with pytest.raises(ValueError, match=OTHERS):
        generate(model, change_one_id(longer, -6), flags, cache)
    generate(model, longer, flags, cache)


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
    cache = models.compressed(model, "kvzip+hubkv", ids[:, :-2], ratio=0.5)
    model = COPIES[min(new, 3) - 1](model)

    def ask(cache):
        if new > 2:
            return generate(model, ids, torch.ones_like(ids), cache)
        return model(ids[:, -2:][:, :new], past_key_values=cache)

    ask(deepcopy(cache))
    CHANGES[change](model)
    if (change, new) != ("merged", 1):  # no trace, and a call of one token samples no numbers
        with pytest.raises(ValueError, match="weights that were changed since: compress the prom"):
            ask(cache)
        ask(models.compressed(model, "kvzip+hubkv", ids[:, :-2], ratio=0.5))
