"""A cache belongs to a model and to the ids it has seen; others are refused."""

import pickle
from copy import deepcopy

import pytest
import torch

import optimized
from optimized.models.digest import FACTOR, Digest
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


def change_one_id(ids, place=3):
    """Return a copy of ids with one id changed."""
    ids = ids.clone()
    ids[-1, place] = 2 + (ids[-1, place] - 1) % (VOCABULARY - 2)
    return ids


@every_system
@pytest.mark.parametrize("padded", [False, True])
def test_ids_of_another_text_are_refused(system, padded):
    model, (ids, mask) = attached_model("llama"), prompts(4)
    mask = mask if padded else torch.ones_like(mask)
    held, flags = ids[:, :-4], mask[:, :-4]
    cache = compressed(model, system, held, flags)
    with pytest.raises(ValueError, match=OTHERS):
        generate_three(model, cache, change_one_id(ids, 10), attention_mask=mask)
    with cache.undone():
        answer = generate_three(model, cache, ids, attention_mask=mask)
    blank = ids.masked_fill(mask == 0, 5)  # ids at padding do not matter
    assert_equal(generate_three(model, cache, blank, attention_mask=mask)[:, -3:], answer[:, -3:])


@every_system
def test_a_second_turn_whose_ids_were_encoded_anew_is_refused(system):
    model, ids = attached_model("llama"), prompts()[0]
    cache = compressed(model, system, ids)
    first = generate_three(model, cache, ids)
    question = torch.cat([first, ids[:, :4]], 1)
    with pytest.raises(ValueError, match=OTHERS):
        generate_three(model, cache, change_one_id(question, 25))
    assert generate_three(model, cache, question).shape[1] == question.shape[1] + 3


def test_new_ids_alone_are_taken_as_they_are():
    """The mask covers the tokens in the cache as well."""
    model, ids = attached_model("llama"), prompts(30)[0]
    cache = compressed(model, "kvzip+hubkv", ids[:, :24])
    with cache.undone():
        whole = generate_three(model, cache, ids)
    behind = generate_three(model, cache, ids[:, 24:], attention_mask=torch.ones_like(ids))
    assert_equal(behind[:, -3:], whole[:, -3:])


@every_system
def test_a_cache_of_another_model_is_refused(system):
    model, ids = attached_model("llama"), prompts(2)[0]
    torch.manual_seed(5)
    config = configuration("llama")
    other = models.attach(transformers.AutoModelForCausalLM.from_config(config).eval())
    cache = compressed(model, system, ids[:, :-2])
    with pytest.raises(ValueError, match="a cache that this model filled, got one of another"):
        generate_three(other, cache, ids)
    same = models.attach(new_model("llama"))
    again = pickle.loads(pickle.dumps(cache))
    assert_equal(generate_three(same, again, ids), generate_three(model, cache, ids))


def test_a_digest_tells_texts_apart():
    draw = torch.Generator().manual_seed(0)
    ids = torch.randint(0, 99, (40, 9), generator=draw)
    real = torch.arange(9) >= torch.randint(0, 4, (40, 1), generator=draw)
    assert len({*torch.as_tensor(Digest().extend(ids, real).number).tolist()}) == 40
    row = ids[:1].expand(9, -1).clone()
    row[range(9), range(9)] += 1
    assert len({*torch.as_tensor(Digest().extend(row, None).number).tolist()}) == 9


def digests_by_definition(rows, flags, before=0):
    """Return the digest of each row, computed from its definition."""
    numbers = []
    for row, there in zip(rows.tolist(), flags.tolist(), strict=True):
        number = before
        for one, real in zip(row, there, strict=True):
            number = (FACTOR * number + one + 1) % 2**64 if real else number
        numbers.append(number)
    return numbers


@pytest.mark.parametrize("count", [1, 2, 7, 64, 300])
def test_a_digest_is_what_it_is_defined_as(count):
    draw = torch.Generator().manual_seed(count)
    ids = torch.randint(0, 2**17, (5, count), generator=draw)
    every = torch.ones_like(ids, dtype=torch.bool)
    real = torch.rand(5, count, generator=draw) < 0.7
    for flags in (every, real):
        whole = Digest().extend(ids, flags)
        assert [
            one % 2**64 for one in torch.as_tensor(whole.number).tolist()
        ] == digests_by_definition(ids, flags)
        by_one = Digest()
        for place in range(count):
            by_one = by_one.extend(ids[:, place : place + 1], flags[:, place : place + 1])
        assert by_one.equals(whole)
    half = count // 2
    assert Digest().extend(ids, None).equals(Digest().extend(ids, every))
    assert (
        Digest()
        .extend(ids[:, :half], every[:, :half])
        .extend(ids[:, half:], None)
        .equals(Digest().extend(ids, None))
    )


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


@every_system
@pytest.mark.parametrize("padded", [False, True])
def test_a_call_of_the_model_with_all_ids_again_is_refused(system, padded):
    ids, mask = prompts(4)
    flags = mask if padded else torch.ones_like(mask)
    cache = compressed(attached_model("llama"), system, ids[:, :-4], flags[:, :-4])
    seen = cache.get_seq_length()
    with pytest.raises(ValueError, match=f"must be the new ids alone, got the {seen} in the cache"):
        attached_model("llama")(input_ids=ids, past_key_values=cache)
    assert cache.get_seq_length() == seen


@pytest.mark.parametrize("system", ["full", "snapkv", "knorm", "kvzip", "gear", "h2o interval"])
def test_a_model_that_caches_nothing_is_refused(system):
    model, (ids, mask) = models.attach(new_model("llama")), prompts()
    model.activation_checkpointing_enable()
    model.train()
    how = dict(ratio=0.5) if system in ("snapkv", "knorm", "kvzip") else {}
    how |= dict(keep=9, interval=4) if system == "h2o interval" else {}
    with pytest.raises(ValueError, match=r"cached nothing: call `model.eval\(\)`"):
        models.compressed(model, system.split()[0], ids, mask, **how)
