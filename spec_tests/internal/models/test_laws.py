"""Laws of a cache: one table of systems, over architectures, with and without padding."""

import functools
import pickle
from copy import copy, deepcopy
from io import BytesIO
from typing import Any

import pytest
import torch
from torch import Tensor

import optimized
import reference
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models import random_model as small
from spec_tests.internal.models.random_model import gates, generate, models, thorough

LENGTH, NEW = 44, 8
"""Tokens of a prompt, padding included, and of an answer."""
HEX = optimized.HexConfig(density=0.0, block=8, recent=2)
ALL = HEX._replace(density=1.0)
HALF: dict[str, Any] = dict(ratio=0.5)
AGAIN: dict[str, Any] = dict(keep=10, interval=4)
LATE: dict[str, Any] = dict(keep=1000, interval=4)
# The name of each case, its system and the options of `compressed`.
WHOLE: dict[str, tuple] = {
    "full": ("full", {}),
    "nothing evicted": ("kvzip+hubkv", dict(ratio=0.0)),
}
EXACT: dict[str, tuple] = WHOLE | {
    "hex of all, block by block": (ALL, {}),
    "hex of all at once": (ALL._replace(mode="full"), {}),
    **{f"{name}, never": (name, LATE) for name in ("h2o+hubkv", "knorm", "streaming_llm")},
}
RANKED = ("kvzip+hubkv", "streaming_llm@layer", "knorm+hubkv", "h2o+nms", "snapkv+graphkv")
SHARED = ("snapkv+graphkv@layer", "pyramidkv", "cake@layer", "expected_attention@model")
EVICTING: dict[str, tuple] = {name: (name, HALF) for name in (*RANKED, *SHARED)}
KEPT = ("h2o", "h2o+hubkv", "h2o+graphkv", "knorm", "streaming_llm")
DECODING: dict[str, tuple] = {f"{name}, again": (name, AGAIN) for name in KEPT} | {
    "fastkvzip, again": ("fastkvzip", AGAIN | dict(settings={"weights": gates(optimized)})),
}
STORED: dict[str, tuple] = {
    "hex": (HEX, {}),
    "hex at once": (HEX._replace(mode="full"), {}),
    "hex+hubkv": (HEX, dict(refined=optimized.HubSettings())),
    "kcvt-3": ("kcvt-3", {}),
    "kivi-4": ("kivi-4", {}),
    "gear": ("gear", {}),
}
CODED = ("snapkv+hubkv@layer>kivi-4", "kvzip>gear", "streaming_llm>kcvt-4")
LEFT: dict[str, tuple] = {name: (name, HALF) for name in CODED}
SYSTEMS = EXACT | EVICTING | DECODING | STORED | LEFT
COMMON = ("full", "nothing evicted", "kvzip+hubkv", "snapkv+graphkv", "h2o+hubkv, again", "hex")
COMMON += ("h2o+hubkv, never", "hex of all at once", "gear")
"""The cases of all architectures; Llama has every case."""


def cases(*groups: dict[str, tuple], both: bool = False) -> list[tuple[str, str, bool]]:
    """Return architecture, case and padding, in turn with and without it, or `both` for Llama."""
    names = [case for group in groups for case in group]
    twice = (False, True) if both or thorough else ()
    found = [
        ("llama", case, padded)
        for turn, case in enumerate(names)
        for padded in twice or [bool(turn % 2)]
    ]
    for turn, kind in enumerate(small.CHOSEN[1:]):
        served = COMMON if kind in small.KEYED else WHOLE | EVICTING
        listed = [case for case in names if case in COMMON and case in served]
        start = turn % max(1, len(listed))
        chosen = listed if thorough else (listed[start:] + listed[:start])[: 1 + both]
        found += [(kind, case, bool((turn + n) % 2)) for n, case in enumerate(chosen)]
    return found


def for_cases(*groups: dict[str, tuple], both: bool = False):
    """Run a test for cases of some groups."""
    return pytest.mark.parametrize(("kind", "case", "padded"), cases(*groups, both=both))


def new(kind: str, **overrides):
    """Return a model; Llama's heads are as wide as a group of KIVI."""
    return small.new_model(kind, **dict(head_dim=32) | overrides if kind == "llama" else overrides)


@functools.cache
def stock(kind: str):
    """Return a model that was never attached."""
    return new(kind)


@functools.cache
def attached(kind: str):
    """Return the same model, attached."""
    return models.attach(new(kind))


def batch(padded: bool, extra: int = 0) -> tuple[Tensor, Tensor]:
    """Return ids and mask of two prompts with `extra` further tokens."""
    ids, mask = small.prompts(LENGTH - 24 + extra)
    return ids, mask if padded else torch.ones_like(mask)


def read(kind: str, case: str, ids: Tensor, mask: Tensor, **options):
    """Return the cache of a case, after a prompt."""
    system, how = SYSTEMS[case]
    return models.compressed(attached(kind), system, ids, mask, **how | options)


def entries(cache) -> list:
    """Return what each layer holds of the text before the last call."""
    names = ("keys", "values", "old", "held")
    return [[vars(layer).get(name) for name in names] for layer in cache.layers]


@for_cases(EXACT, both=True)
def test_what_loses_nothing_answers_turn_by_turn_as_the_model_does(kind, case, padded):
    ids, mask = batch(padded)
    cache = read(kind, case, ids, mask)
    for how in ({}, dict(do_sample=True, top_k=5)):
        expected = generate(stock(kind), ids, mask, **how)
        assert_equal(generate(attached(kind), ids, mask, cache, **how), expected)
        assert cache.get_seq_length() == ids.shape[1] + NEW - 1
        ids = torch.cat([expected, torch.full((2, 3), 5)], 1)
        mask = torch.cat([mask, torch.ones(2, NEW + 3).long()], 1)


@for_cases(WHOLE, both=True)
def test_beams_over_a_whole_cache_are_those_of_the_model(kind, case, padded):
    ids, mask = batch(padded)
    cache, how = read(kind, case, ids, mask), dict(num_beams=3, num_return_sequences=2)
    expected = generate(stock(kind), ids, mask, **how)
    assert_equal(generate(attached(kind), ids, mask, cache, **how), expected)


@for_cases(SYSTEMS)
def test_a_question_is_read_at_once_as_token_by_token(kind, case, padded):
    ids, mask = batch(padded, 9)
    at_once, by_one = (read(kind, case, ids[:, :LENGTH], mask[:, :LENGTH]) for _ in range(2))
    for stop in range(by_one.get_seq_length() + 1, LENGTH + 9):
        new = ids[:, stop - 1 : stop]
        attached(kind)(new, attention_mask=mask[:, :stop], past_key_values=by_one)
    texts = [generate(attached(kind), ids, mask, cache) for cache in (at_once, by_one)]
    assert_equal(*texts)


@for_cases(WHOLE, EVICTING)
def test_the_last_token_of_an_answer_is_read_again_where_no_new_one_follows(kind, case, padded):
    ids, mask = batch(padded)
    cache = read(kind, case, ids, mask)
    text = generate(attached(kind), ids, mask, cache)
    mask = torch.cat([mask, torch.ones(2, NEW - 1).long()], 1)
    again = generate(attached(kind), text[:, :-1], mask, cache)
    assert_equal(again[:, : LENGTH + NEW], text)


UNTIED = {name: case for name, case in DECODING.items() if name != "knorm, again"}
"""Without the norms of keys, which are equal where tokens are, up to rounding."""


@pytest.mark.parametrize(
    ("kind", "case"), dict.fromkeys(given[:2] for given in cases(EVICTING, UNTIED, STORED))
)
def test_a_row_is_what_it_is_alone(kind, case):
    """A row without padding, one with, and one of a single token; questions of unlike lengths."""
    ids, mask = batch(True)
    rows = [0, 1] if case in EVICTING or kind == "lfm2" else [0, 1, 0]
    ids, mask = ids[rows], mask[rows]
    mask[2:, :-1] = 0
    questions, present = batch(False, 9)[0][rows, -9:], torch.ones(len(rows), 9).long()
    if kind == "llama" and case not in DECODING:  # padding is no token of a window or a state
        present[0, :5] = 0
    every, flags = torch.cat([ids, questions], 1), torch.cat([mask, present], 1)
    together = generate(attached(kind), every, flags, read(kind, case, ids, mask))
    for row in range(2 if case in DECODING else len(rows)):
        prompt = ids[row : row + 1, mask[row].bool()]
        alone = read(kind, case, prompt, torch.ones_like(prompt))
        text = every[row : row + 1, flags[row].bool()]
        answer = generate(attached(kind), text, torch.ones_like(text), alone)
        assert_equal(together[row : row + 1, -NEW:], answer[:, -NEW:])


WINDOWED = ("gemma2", "gpt_oss", "gemma4_text")


@for_cases(WHOLE, EVICTING)
def test_a_row_that_ended_early_goes_on_without_what_it_said_after_its_end(kind, case, padded):
    if kind == "lfm2":  # a state cannot forget
        return
    answered, lost, (ids, mask) = 6, 4, batch(padded, 9)
    cache = read(kind, case, ids[:, :LENGTH], mask[:, :LENGTH])
    for stop in range(LENGTH + 1, LENGTH + answered + 1):
        attached(kind)(
            ids[:, stop - 1 : stop], attention_mask=mask[:, :stop], past_key_values=cache
        )
    mask[0, LENGTH + answered - lost : LENGTH + answered] = 0
    together = generate(attached(kind), ids, mask, cache)
    if case in WHOLE:
        assert_equal(together, generate(stock(kind), ids, mask))
    if kind in WINDOWED:  # whose windows count hidden tokens, too
        return
    alone = read(kind, case, ids[:1, :LENGTH], mask[:1, :LENGTH])
    text = ids[:1, mask[0].bool()]
    answer = generate(attached(kind), text, torch.ones_like(text), alone)
    assert_equal(together[:1, -NEW:], answer[:, -NEW:])


class TensorBytes(pickle.Pickler):
    """The bytes of every storage that an object keeps alive."""

    def __init__(self, cache):
        super().__init__(BytesIO())
        self.sizes: dict[int, int] = {}
        self.dump(cache)

    def persistent_id(self, obj):
        """Count the storage of a tensor, once for all its views."""
        if not isinstance(obj, Tensor):
            return None
        storage = obj.untyped_storage()
        self.sizes[storage.data_ptr()] = storage.nbytes()
        return True


def saved(cache):
    """Return a cache that was written and read again."""
    file = BytesIO()
    torch.save(cache, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@for_cases(SYSTEMS)
def test_questions_that_are_undone_and_copies_leave_no_trace(kind, case, padded):
    ids, mask = batch(padded, 3)
    cache = read(kind, case, ids[:, :LENGTH], mask[:, :LENGTH])
    size = cache.nbytes, LENGTH - (case not in WHOLE | EVICTING)  # else the last one is read later
    assert cache.get_seq_length() == size[1]
    record = cache.ids.nbytes + sum(mask.nbytes for mask in cache.kept_of_prompt or ())
    assert size[0] == sum(TensorBytes(cache).sizes.values()) - record
    answers = []
    for token in (3, 4, 3):
        ids[:, LENGTH:] = token
        with cache.undone():
            answers.append(generate(attached(kind), ids, mask, cache))
            assert cache.get_seq_length() == LENGTH + 3 + NEW - 1
        assert (cache.nbytes, cache.get_seq_length()) == size
    assert_equal(answers[0], answers[2])
    assert not answers[0].equal(answers[1])
    for copied in (copy, deepcopy, saved):
        other = copied(cache)
        assert (other.nbytes, other.get_seq_length()) == size
        assert_equal(generate(attached(kind), ids, mask, other), answers[0])
    assert_equal(generate(attached(kind), ids, mask, cache), answers[0])


@for_cases(EVICTING, DECODING, STORED, LEFT, both=True)
def test_both_implementations_hold_the_same_in_fewer_bytes(kind, case, padded):
    ids, mask = batch(padded)
    options = {kv: {} for kv in (reference, optimized)}
    if case.startswith("fastkvzip"):
        options = {kv: dict(settings={"weights": gates(kv)}) for kv in options}
    both = [read(kind, case, ids, mask, kv=kv, **how) for kv, how in options.items()]
    assert both[0].nbytes == both[1].nbytes < read(kind, "full", ids, mask).nbytes
    if case in EVICTING:
        assert_equal(*map(entries, both))
    copies = [saved(cache) for cache in both]
    for copied, cache in zip(copies, both, strict=True):
        used = [[vars(layer).get("kv") for layer in filled.layers] for filled in (copied, cache)]
        assert used[0] == used[1]
    assert_equal(*(generate(attached(kind), ids, mask, copied) for copied in copies))


@for_cases(EVICTING, {"hex": STORED["hex"]})
def test_a_prompt_in_chunks_leaves_what_the_whole_one_does(kind, case, padded):
    ids, mask = batch(padded, 3)
    texts = [
        generate(attached(kind), ids, mask, read(kind, case, ids[:, :-3], mask[:, :-3], chunk=size))
        for size in (None, 7)
    ]
    assert_equal(*texts)


@for_cases(DECODING)
def test_no_head_holds_more_than_its_target_and_an_interval(kind, case, padded):
    ids, mask = batch(padded)
    cache = read(kind, case, ids, mask)
    generate(attached(kind), ids, mask, cache)
    counts = [
        optimized.decoding_read(layer.held).present.sum(-1)
        for layer in cache.layers
        if getattr(layer, "held", None) is not None and not layer.is_sliding
    ]
    most = AGAIN["keep"] + AGAIN["interval"]
    assert counts
    assert all(float(count.float().mean(-1).max()) < most for count in counts)


@for_cases(EXACT, EVICTING, DECODING, STORED)
def test_a_cache_that_is_reset_knows_nothing_of_what_it_read(kind, case, padded):
    ids, mask = batch(padded)
    cache, other = read(kind, case, ids, mask), read(kind, case, ids.flip(1), torch.ones_like(mask))
    for filled in (cache, other):
        before = filled.nbytes
        filled.reset()
        assert filled.get_seq_length() == 0
        assert filled.nbytes < before / 4
    if isinstance(cache, models.EvictionCache):
        with pytest.raises(ValueError, match="a prompt that `prefill` read, got an empty"):
            generate(attached(kind), ids, mask, cache)
    else:
        texts = [generate(attached(kind), ids, mask, emptied) for emptied in (cache, other)]
        assert_equal(*texts)


ROWS = torch.tensor([1, 0, 1])


@for_cases(WHOLE, EVICTING, both=True)
def test_rows_that_are_taken_go_on_as_though_they_had_been_read(kind, case, padded):
    ids, mask = batch(padded)
    taken = read(kind, case, ids, mask)
    taken.batch_select_indices(ROWS)
    ids, mask = ids[ROWS], mask[ROWS]
    again = read(kind, case, ids, mask)
    assert taken.nbytes <= 1.01 * again.nbytes
    expected = generate(attached(kind), ids, mask, again)
    assert_equal(generate(attached(kind), ids, mask, taken), expected)


@functools.cache
def half_precision():
    """Return a model whose weights have eight bits."""
    return models.attach(new("llama").to(torch.bfloat16))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("case", SYSTEMS)
def test_entries_have_the_precision_in_which_the_model_computes(case, autocast):
    (ids, mask), (system, how) = batch(False), SYSTEMS[case]
    model = attached("llama") if autocast else half_precision()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        cache = models.compressed(model, system, ids, mask, **how)
        how = dict(output_scores=True, return_dict_in_generate=True)
        text: Any = generate(model, ids, mask, cache, **how)
    assert all(layer.keys.dtype == layer.values.dtype == torch.bfloat16 for layer in cache.layers)
    assert not torch.stack(text.scores).isnan().any()
