"""`compressed` returns the cache of every named system in one call."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

import optimized
import reference
from optimized.models import SCORERS
from optimized.models.selection import kept_entries
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import (
    PADDING,
    TOKENS,
    VOCABULARY,
    attached_model,
    generate,
    logits_after,
    models,
    new_model,
    prompts,
    transformers,
    word_tokenizer,
)
from spec_tests.internal.models.test_laws import EVICTING, HEX


def inputs_of(padded: bool = True) -> dict:
    """Return the inputs that a tokenizer returns for the prompts."""
    ids, mask = prompts()
    return dict(input_ids=ids, attention_mask=mask if padded else torch.ones_like(mask))


def build_by_hand(name: str, model, inputs: dict, reading: str):
    """Return the cache that `compressed` returns, built statement by statement."""
    system = models.system_named(name)
    shared = name.startswith(("pyramidkv", "cake"))
    how: dict[str, Any] = {"exact": reading == "remedied"} if shared else {}
    if name.startswith(("snapkv", "pyramidkv", "cake")):
        how["window"] = 6
    scorer = models.scorer(system.scorer, model, **how)
    prompt = models.prefill(model, *inputs.values(), watch=[scorer.watch])
    scores = scorer.finish(prompt, TOKENS // 2)
    kept = kept_entries(system, prompt, scores, 0.5, reading, optimized)
    prompt.cache.evict(kept)
    return prompt.cache


def entries(cache) -> list:
    """Return the entries of each layer."""
    return [(layer.whole, layer.old) for layer in cache.evictable()]


@pytest.mark.parametrize("name", [*EVICTING, "random"])
@pytest.mark.parametrize("reading", ["letter", "remedied"])
def test_two_lines_do_what_the_statements_under_them_do(name, reading):
    model, inputs = attached_model("llama"), inputs_of(padded=False)
    cache = models.compressed(model, name, ratio=0.5, reading=reading, **inputs)
    assert_equal(entries(cache), entries(build_by_hand(name, model, inputs, reading)))


def test_a_graph_in_another_scope_keeps_other_entries():
    names = ("snapkv+graphkv", "snapkv+graphkv@layer")
    refined = optimized.GraphSettings(4, adaptive=False, per_head=True)
    how = dict(ratio=0.5, refined=refined, **inputs_of(padded=False))
    alone, shared = (models.compressed(attached_model("llama"), name, **how) for name in names)
    assert alone.layers[0].old is None
    assert shared.layers[0].old is not None


def test_hex_in_two_lines_is_the_cache_that_reads_all_at_once():
    model, ids, settings = attached_model("llama"), prompts(1)[0], HEX._replace(heavy=0.5)
    at_once = models.HexTransformersCache(model.config, settings)
    with torch.no_grad():  # three blocks
        model(ids[:, :-1], past_key_values=at_once)
    for chunk in (None, 7):
        cache = models.compressed(model, settings, ids, chunk=chunk)
        for mine, other in zip(cache.layers, at_once.layers, strict=True):
            assert_equal(mine.held.blocks[0].dynamic, other.held.blocks[0].dynamic)


READINGS = {
    "gear": {},
    "hex-4": {},
    "streaming_llm>gear": dict(ratio=0.25),
    "snapkv+graphkv": dict(ratio=0.5),
}


@pytest.mark.parametrize("system", READINGS)
def test_a_reading_changes_what_is_seen_of_a_prompt(system):
    model = models.attach(new_model("llama", head_dim=64))  # 128 channels, as HEX-4 needs
    ids = torch.randint(2, VOCABULARY, (1, 200), generator=torch.Generator().manual_seed(0))
    caches = [
        models.compressed(model, system, ids[:, :-3], reading=reading, **READINGS[system])
        for reading in ("letter", "remedied")
    ]
    both = [
        logits_after(model, cache, ids, torch.ones_like(ids), 200 - cache.get_seq_length())
        for cache in caches
    ]
    assert not torch.allclose(both[0][:, -3:], both[1][:, -3:])


def test_a_share_at_every_interval_is_of_the_longest_row():
    counts = []
    for how in (dict(ratio=0.75), dict(keep=TOKENS // 4)):
        cache = models.compressed(attached_model("llama"), "h2o", interval=4, **inputs_of(), **how)
        counts.append([optimized.decoding_read(layer.held).present for layer in cache.layers])
    assert_equal(*counts)


def entry_counts(cache):
    """Return how many entries each head of each layer holds, rows first."""
    return [
        layer.keys.shape[2] + layer.old.offsets.diff().view(2, -1)
        if layer.old is not None
        else torch.full((2, 2), layer.keys.shape[2])
        for layer in cache.evictable()
    ]


RANKING = [name for name in SCORERS if name != "fastkvzip"]
REFINED = [f"{name}{more}" for name in ("snapkv", "kvzip") for more in ("+hubkv", "+graphkv@head")]


@pytest.mark.parametrize("name", [*RANKING, *REFINED, "snapkv@layer", "snapkv@model"])
def test_a_budget_of_more_than_a_row_has_keeps_the_row_whole(name):
    inputs = inputs_of()
    cache = models.compressed(attached_model("llama"), name, keep=512, **inputs)
    for layer in entry_counts(cache):
        assert (layer >= torch.tensor([[TOKENS], [TOKENS - PADDING]])).all()
    some = models.compressed(attached_model("llama"), name, keep=TOKENS - PADDING, **inputs)
    for layer in entry_counts(some):
        assert layer[1].tolist() == [TOKENS - PADDING] * 2


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("kvzip", 5),
        ("kvzip+hubkv", 5),
        ("kvzip+graphkv@head", 5),
        ("snapkv", 1),
        ("snapkv@model", 1),
        ("cake", 2),
        ("pyramidkv", 1),
        ("expected_attention", 4),
        ("streaming_llm", 4),
    ],
)
def test_of_a_budget_below_what_is_protected_that_alone_is_left(name, left):
    ids = prompts(38)[0]
    model, how = attached_model("llama"), dict(input_ids=ids, ratio=0.995)
    with pytest.warns(UserWarning, match=r"budget \d+ of a \w+ is below .* in 2 of 2 rows") as said:
        cache = models.compressed(model, name, **how)
    assert len(said) == 1
    assert [layer.tolist() for layer in entry_counts(cache)] == [[[left] * 2] * 2] * 2
    assert model.generate(ids, past_key_values=cache, max_new_tokens=2).shape == (2, 64)


@pytest.mark.parametrize("name", ["snapkv", "pyramidkv+graphkv", "cake"])
def test_a_window_is_cut_to_the_budget(name):
    ids = prompts(38)[0]
    how = dict(input_ids=ids, keep=5)
    cut, told = (
        models.compressed(attached_model("llama"), name, settings={"window": window}, **how)
        for window in (32, 5)
    )
    for layer, other in zip(entry_counts(cut), entry_counts(told), strict=True):
        assert layer.sum() <= 2 * 2 * 10
        assert_equal(layer, other)


@pytest.mark.parametrize("system", ["full", HEX, "gear", "knorm>gear"], ids=str)
def test_a_prompt_of_one_token_is_one(system):
    ids, how = torch.tensor([[7]]), dict(keep=4) if ">" in str(system) else {}
    cache = models.compressed(attached_model("llama"), system, input_ids=ids, **how)
    mask = torch.ones_like(ids)
    assert generate(attached_model("llama"), ids, mask, cache).shape == (1, 9)


@pytest.mark.parametrize("kv", [reference, optimized], ids=["reference", "optimized"])
def test_settings_reach_the_scorer_and_the_refinement(kv):
    model, inputs = attached_model("llama"), inputs_of(padded=False)
    hub = optimized.HubSettings(gamma=0.9, maximum=1.5)
    made = models.scorer("snapkv", model, kv, window=5)
    one = models.compressed(model, made, refined=hub, ratio=0.5, kv=kv, **inputs)
    how = dict(settings=dict(window=5), refined=hub, ratio=0.5, kv=kv)
    other = models.compressed(model, "snapkv", **how, **inputs)
    plain = models.compressed(model, "snapkv", ratio=0.5, settings=dict(window=5), **inputs)
    assert_equal(entries(one), entries(other))
    assert not entries(one)[0][0][0].equal(entries(plain)[0][0][0])


def test_a_pipeline_a_streamer_and_a_chat_take_the_cache():
    model, tokenizer = attached_model("llama"), word_tokenizer()
    text = " ".join(f"w{5 + 7 * number % 50}" for number in range(30))
    inputs = tokenizer([text, text[:60]], padding=True, return_tensors="pt")
    models.compressed(model, "kvzip+hubkv", ratio=0.5, **inputs)
    one = tokenizer(text, return_tensors="pt")
    cache = models.compressed(model, "kvzip+hubkv", ratio=0.75, **one)
    how = dict(max_new_tokens=4, do_sample=False)
    seen = SimpleNamespace(tokens=[], put=lambda new: seen.tokens.append(new), end=lambda: None)
    with cache.undone():
        answer = model.generate(**one, past_key_values=cache, streamer=seen, **how)
    assert_equal(torch.cat([new.flatten() for new in seen.tokens]), answer[0])
    pipe = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    with cache.undone():
        out = pipe(text, past_key_values=cache, **how)
    # A pipeline decodes the answer by itself, and appends it to the text.
    assert out[0]["generated_text"] == text + tokenizer.decode(answer[0, len(one.input_ids[0]) :])
    asked = [{"role": "user", "content": text}]
    chat = tokenizer.apply_chat_template(asked, return_tensors="pt", return_dict=True)
    cache = models.compressed(model, "snapkv", ratio=0.5, **chat)
    assert model.generate(**chat, past_key_values=cache, **how).shape[1] == 32 + 4


@pytest.mark.parametrize("system", ["snapkv+hubkv", "kvzip", "streaming_llm@layer"])
@pytest.mark.parametrize("padded", [False, True])
def test_each_layer_can_have_a_budget_of_its_own(system, padded):
    ids, mask = prompts()
    mask = mask if padded else torch.ones_like(mask)
    counts = mask.sum(-1)
    for how in (dict(ratio=[0.25, 0.5]), dict(ratio=[0.0, 0.5]), dict(keep=[20, 12])):
        cache = models.compressed(attached_model("llama"), system, ids, mask, **how)
        for place, held in enumerate(entry_counts(cache)):
            shares = how.get("ratio")
            left = [shares and optimized.kept_count(int(n), shares[place]) for n in counts]
            kept = torch.tensor(left) if shares else counts.clamp(max=how["keep"][place])
            assert_equal(held.sum(-1), 2 * kept)


class Words:
    """A tokenizer with a chat template: each word is an id that depends on its length."""

    chat_template = "yes"

    def __init__(self):
        self.asked = []

    def decode(self, ids):
        """Return the ids as words."""
        return " ".join(map(str, ids.tolist()))

    def apply_chat_template(self, messages, tokenize, add_generation_prompt):
        """Return a turn of the user, and the start of the answer."""
        assert not tokenize
        assert add_generation_prompt
        return f"<system> <user> {messages[0]['content']} </user> <model>"

    def __call__(self, text, add_special_tokens):
        """Return the ids of a text."""
        assert not add_special_tokens
        self.asked.append(text)
        return {"input_ids": [2 + len(word) % 50 for word in text.split()]}


def test_kvzip_asks_in_words_where_it_is_given_a_tokenizer():
    ids, words = prompts()[0][:1], Words()
    how = dict(ratio=0.5, settings={"tokenizer": words, "chunk": 12, "sinks": 2})
    asked = models.compressed(attached_model("llama"), "kvzip", ids, **how)
    start = " ".join(map(str, ids[0, 14:22].tolist()))
    assert words.asked == [
        "\n\nRepeat the previous context exactly. </user> <model>",
        "\n\nRepeat the part of the previous context exactly, starting with "
        f"`{start}`. </user> <model>",
    ]
    silent = models.compressed(
        attached_model("llama"), "kvzip", ids, ratio=0.5, settings={"chunk": 12, "sinks": 2}
    )
    assert asked.nbytes > 0
    pairs = zip(asked.layers, silent.layers, strict=True)
    assert any(
        a.old.keys.shape != b.old.keys.shape or not torch.equal(a.old.keys, b.old.keys)
        for a, b in pairs
    )
