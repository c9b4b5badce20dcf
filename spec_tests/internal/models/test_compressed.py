"""`compressed` returns the cache of every named system in one call."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit

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
    gates,
    generate,
    models,
    new_model,
    prompts,
    stock_model,
    transformers,
)

HEX = optimized.HexConfig(density=0.0, block=8, recent=2)
ALL = HEX._replace(density=1.0)
SYSTEMS = (
    "random",
    "streaming_llm@layer",
    "knorm+hubkv",
    "h2o+nms",
    "snapkv+graphkv",
    "snapkv+graphkv@layer",
    "pyramidkv",
    "cake@layer",
    "expected_attention@model",
    "kvzip+hubkv",
)
STORED = ("kcvt-3", "kivi-4", "gear", HEX)


def inputs_of(padded: bool = True, more: int = 0) -> dict:
    """Return the inputs that a tokenizer returns for the prompts."""
    ids, mask = prompts(more)
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


@pytest.mark.parametrize("name", SYSTEMS)
@pytest.mark.parametrize("reading", ["letter", "remedied"])
def test_two_lines_do_what_the_statements_under_them_do(name, reading):
    model, inputs = attached_model("llama"), inputs_of(padded=False)
    cache = models.compressed(model, name, ratio=0.5, reading=reading, **inputs)
    assert_equal(entries(cache), entries(build_by_hand(name, model, inputs, reading)))
    assert cache.nbytes < 0.6 * models.compressed(model, "full", **inputs).nbytes


WINDOWED = ("gemma2", "gemma3_text", "gpt_oss", "qwen2 windowed")


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("llama", name) for name in SYSTEMS), *((kind, "kvzip+hubkv") for kind in WINDOWED)],
)
def test_a_row_is_compressed_as_though_it_stood_alone(kind, name):
    model, inputs = attached_model(kind), inputs_of()
    cache = models.compressed(model, name, ratio=0.5, **inputs)
    more = torch.cat([inputs["input_ids"], torch.full((2, 3), 7)], 1)
    mask = torch.cat([inputs["attention_mask"], torch.ones(2, 3).long()], 1)
    together = generate(model, more, mask, cache)
    for row, start in ((0, 0), (1, PADDING)):
        if name == "random":  # random scores are drawn for the whole batch
            continue
        one = {key: value[row : row + 1, start:] for key, value in inputs.items()}
        alone = models.compressed(model, name, ratio=0.5, **one)
        here = slice(row, row + 1), slice(start, None)
        assert_equal(together[here], generate(model, more[here], mask[here], alone))


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
def test_a_row_decodes_as_though_it_stood_alone_even_beside_one_of_a_single_token(kind):
    model, (ids, mask) = attached_model(kind), inputs_of().values()
    ids, mask = torch.cat([ids, ids[:1]]), torch.cat([mask, mask[:1]])
    mask[2, :-1] = 0
    how = dict(keep=10, interval=4)
    together = generate(model, ids, mask, models.compressed(model, "h2o+hubkv", ids, mask, **how))
    for row, start in ((0, 0), (1, PADDING)):
        one = ids[row : row + 1, start:], mask[row : row + 1, start:]
        alone = models.compressed(model, "h2o+hubkv", *one, **how)
        assert_equal(together[row : row + 1, start:], generate(model, *one, alone))


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
@pytest.mark.parametrize("system", [*STORED, "hex"], ids=str)
def test_a_row_is_stored_as_though_it_stood_alone(kind, system):
    model, (ids, mask) = models.attach(new_model(kind, head_dim=32)), inputs_of(more=20).values()
    ids, mask = torch.cat([ids, ids[:1]]), torch.cat([mask, mask[:1]])
    mask[2, :-1] = 0
    how = dict(refined=optimized.HubSettings()) if system == "hex" else {}
    system = HEX if system == "hex" else system
    together = models.compressed(model, system, ids, mask, **how)
    text = generate(model, ids, mask, together)
    size = 0

    def stored(cache) -> int:
        return optimized.stored_bytes([x.held for x in cache.layers if not x.is_sliding])

    for row, start in ((0, 0), (1, PADDING), (2, ids.shape[1] - 1)):
        one = ids[row : row + 1, start:], mask[row : row + 1, start:]
        alone = models.compressed(model, system, *one, **how)
        assert_equal(text[row : row + 1, start:], generate(model, *one, alone))
        size += stored(alone)
    assert stored(together) == size


@pytest.mark.parametrize("system", ["kvzip+hubkv", *STORED], ids=str)
def test_questions_of_unlike_lengths_are_answered_as_though_each_stood_alone(system):
    model, inputs = models.attach(new_model("llama", head_dim=32)), inputs_of(more=20)
    how = dict(ratio=0.5) if system == "kvzip+hubkv" else {}
    questions, there = prompts(3)[0][:, -9:], torch.ones(2, 9).long()
    there[0, :5] = 0
    ids = torch.cat([inputs["input_ids"], questions], 1)
    mask = torch.cat([inputs["attention_mask"], there], 1)
    together = generate(model, ids, mask, models.compressed(model, system, **how, **inputs))
    for row in range(2):
        one = {name: x[row : row + 1] for name, x in inputs.items()}
        real = one["attention_mask"][0].bool()
        one = {name: x[:, real] for name, x in one.items()}
        cache = models.compressed(model, system, **how, **one)
        asked = ids[row : row + 1, mask[row].bool()]
        answer = generate(model, asked, torch.ones_like(asked), cache)
        assert_equal(together[row : row + 1, -8:], answer[:, -8:])


@pytest.mark.parametrize("system", [*STORED, "hex"], ids=str)
def test_what_is_stored_has_read_all_but_the_last_token(system):
    model, inputs = models.attach(new_model("llama", head_dim=32)), inputs_of(padded=False, more=20)
    how = dict(refined=optimized.HubSettings()) if system == "hex" else {}
    system = HEX if system == "hex" else system
    cache = models.compressed(model, system, **how, **inputs)
    assert cache.get_seq_length() == inputs["input_ids"].shape[1] - 1
    full = models.compressed(model, "full", **inputs)
    assert cache.nbytes < full.nbytes
    ids, mask = inputs.values()
    text = generate(model, ids, mask, cache)
    assert text.shape[1] == inputs["input_ids"].shape[1] + 8


def test_hex_in_two_lines_is_the_cache_that_reads_all_at_once():
    model, inputs = attached_model("llama"), inputs_of(padded=False)
    at_once = models.HexTransformersCache(model.config, HEX)
    with torch.no_grad():
        model(input_ids=inputs["input_ids"][:, :-1], past_key_values=at_once)
    for chunk in (None, 7):
        cache = models.compressed(model, HEX, chunk=chunk, **inputs)
        for mine, other in zip(cache.layers, at_once.layers, strict=True):
            assert_equal(mine.held.blocks[0].dynamic, other.held.blocks[0].dynamic)


EXACT = {
    "full": ("full", {}),
    "evicted": ("kvzip+hubkv", dict(ratio=0.0)),
    "hex": (ALL, {}),
    "decoding": ("h2o+hubkv", dict(keep=1000, interval=4)),
}


@pytest.mark.parametrize("case", EXACT)
@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt_oss"])
def test_a_cache_that_loses_nothing_generates_turn_by_turn_what_the_model_does(case, kind):
    system, how = EXACT[case]
    inputs = inputs_of(padded=case != "hex")
    cache = models.compressed(attached_model(kind), system, **how, **inputs)
    ids, mask = inputs.values()
    for _ in range(2):
        expected = generate(stock_model(kind), ids, mask)
        assert_equal(generate(attached_model(kind), ids, mask, cache), expected)
        ids = torch.cat([expected, torch.full((2, 3), 5)], 1)
        mask = torch.cat([mask, torch.ones(2, 11).long()], 1)


@pytest.mark.parametrize("system", ["snapkv+hubkv", HEX], ids=["snapkv", "hex"])
def test_several_questions_are_asked_of_one_context(system):
    model, inputs = attached_model("llama"), inputs_of(padded=False)
    how = {} if system is HEX else dict(ratio=0.5)
    cache = models.compressed(model, system, **how, **inputs)
    questions = [torch.full((2, 3), token) for token in (3, 4, 3)]
    answers = []
    for question in questions:
        ids = torch.cat([inputs["input_ids"], question], 1)
        with cache.undone():
            answers.append(generate(model, ids, torch.ones_like(ids), cache))
    assert_equal(answers[0], answers[2])
    assert not answers[0].equal(answers[1])


@pytest.mark.parametrize("name", ["h2o", "h2o+hubkv", "h2o+graphkv", "knorm", "fastkvzip"])
def test_a_cache_compresses_itself_again_at_every_interval(name):
    model, inputs = attached_model("llama"), inputs_of()
    settings = {"weights": gates(optimized)} if name == "fastkvzip" else {}
    how = dict(keep=10, interval=4, settings=settings)
    cache = models.compressed(model, name, **how, **inputs)
    ids, mask = inputs.values()
    generate(model, ids, mask, cache)
    for layer in cache.layers:
        assert int(optimized.decoding_read(layer.held).present.sum(-1).max()) <= 2 * (10 + 4)
    assert cache.get_seq_length() == TOKENS + 7


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


def test_a_scorer_takes_one_prompt_after_the_other():
    model, (ids, mask) = attached_model("llama"), prompts()
    made = models.scorer("snapkv", model)
    for text, flags in ((ids[:, -8:], mask[:, -8:]), (ids, mask)):
        cache = models.compressed(model, made, text, flags, ratio=0.5)
        new = models.compressed(model, "snapkv", text, flags, ratio=0.5)
        assert_equal(entries(cache), entries(new))


def test_it_attaches_a_model_that_is_not_attached():
    model, (ids, mask) = new_model("qwen2"), prompts()
    cache = models.compressed(model, "snapkv", ids, mask, ratio=0.5)
    assert_equal(generate(model, ids, mask), generate(stock_model("qwen2"), ids, mask))
    assert generate(model, ids, mask, cache).shape[1] == TOKENS + 8


TEMPLATE = "{% for m in messages %}w2 {{ m['content'] }} {% endfor %}w3"


def word_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return a tokenizer whose tokens are words."""
    known = {f"w{number}": number for number in range(VOCABULARY)}
    inner = Tokenizer(WordLevel(known, unk_token="w1"))
    inner.pre_tokenizer = WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="w0", padding_side="left", chat_template=TEMPLATE
    )


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


def test_a_scorer_that_was_made_has_its_settings_already():
    snapkv = models.scorer("snapkv", attached_model("llama"), window=6)
    with pytest.raises(ValueError, match="settings of snapkv must be left out, got window"):
        models.compressed(
            attached_model("llama"),
            snapkv,
            ratio=0.5,
            settings={"window": 3},
            **inputs_of(padded=False),
        )


@pytest.mark.parametrize("kind", ["gpt_oss", "gemma2"])
def test_expected_attention_is_of_models_that_rotate_what_they_project(kind):
    inputs = inputs_of()
    if kind == "gemma2":
        models.compressed(attached_model(kind), "expected_attention", ratio=0.5, **inputs)
        return
    with pytest.raises(ValueError, match=r"in halves, for expected_attention, got 'gpt_oss'"):
        models.compressed(attached_model(kind), "expected_attention", ratio=0.5, **inputs)


@pytest.mark.parametrize("system", ["snapkv+hubkv", "kvzip", "streaming_llm@layer"])
@pytest.mark.parametrize("padded", [False, True])
def test_each_layer_can_have_a_budget_of_its_own(system, padded):
    ids, mask = prompts()
    mask = mask if padded else torch.ones_like(mask)
    counts = mask.sum(-1).tolist()
    for how in (dict(ratio=[0.25, 0.5]), dict(keep=[18, 12])):
        cache = models.compressed(attached_model("llama"), system, ids, mask, **how)
        for place, layer in enumerate(cache.layers):
            held = count_kept(layer)
            for row, count in enumerate(counts):
                share = how.get("keep") or [optimized.kept_count(count, x) for x in how["ratio"]]
                assert held[row] == 2 * min(share[place], count)
    whole = models.compressed(attached_model("llama"), system, ids, mask, ratio=[0.0, 0.5])
    assert count_kept(whole.layers[0]) == [2 * count for count in counts]


def count_kept(layer) -> list[int]:
    """Return how many entries a layer keeps of each row."""
    if layer.old is None:
        return [layer.keys.shape[1] * layer.keys.shape[2]] * len(layer.keys)
    return layer.old.offsets.diff().view(len(layer.keys), -1).sum(-1).tolist()


def test_a_list_of_one_number_is_that_number_by_layer():
    ids, mask = prompts()
    one = models.compressed(attached_model("llama"), "snapkv", ids, mask, ratio=0.5)
    two = models.compressed(attached_model("llama"), "snapkv", ids, mask, ratio=[0.5, 0.5])
    for a, b in zip(one.layers, two.layers, strict=True):
        assert all(map(torch.equal, a.old or a.whole, b.old or b.whole))


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
    with pytest.raises(ValueError, match="tokenizer or prompt, got both"):
        models.scorer("kvzip", attached_model("llama"), tokenizer=words, prompt=[1])
