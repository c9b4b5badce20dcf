"""KVzip."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from spec_tests.accuracy import assert_close, assert_equal
from spec_tests.scorers.kvzip import oracle
from spec_tests.scorers.kvzip.strategies import chunk_count, kvzip, kvzip_chunk
from spec_tests.scorers.padding_invariance import starts
from spec_tests.scorers.padding_masks import masks
from spec_tests.strategies import gaussian_tensor

pytestmark = pytest.mark.spec("HubKV-KVzip")


@st.composite
def grouped(draw, group):
    """Two rows of an odd number of tokens, differently padded; two chunks of three, one sink."""
    kv_heads = 1 if group == 8 else 2
    keys = draw(gaussian_tensor(2, kv_heads, 7, 2))
    x = dict(keys=keys, chunk=3, sinks=1, valid=draw(masks((2,), 7)), repeat_valid=None)
    chunks = chunk_count(x)
    x |= dict(
        queries=tuple(draw(gaussian_tensor(2, kv_heads * group, 3, 2)) for _ in range(chunks)),
        repeat_keys=tuple(draw(gaussian_tensor(2, kv_heads, 4, 2)) for _ in range(chunks)),
    )
    if draw(st.booleans()):
        x["repeat_valid"] = tuple(
            torch.ones(2, 4, dtype=torch.bool) if mask is None else mask
            for mask in (draw(masks((2,), 4)) for _ in range(chunks))
        )
    return x


def rows(x):
    """Yield each row, its first real token, and its repeat inputs without padding."""
    for row, first in starts(x):
        echoes = []
        for index, (asking, echo) in enumerate(zip(x["queries"], x["repeat_keys"], strict=True)):
            mask = None if x["repeat_valid"] is None else x["repeat_valid"][index][row]
            blank = 0 if mask is None else int((~mask).sum())
            extra = max(0, blank - (echo.shape[-2] - asking.shape[-2]))
            echoes.append((asking[row][:, extra:], echo[row][:, blank:]))
        yield row, first, echoes


@pytest.mark.parametrize("group", [1, 4, 8])
@given(data=st.data())
def test_scores_agree_with_scalar_loops(impl, group, data):
    x = data.draw(grouped(group))
    scores = impl.kvzip(**x).scores
    for row, first, echoes in rows(x):
        keys = x["keys"][row][:, first:].double().tolist()
        expected = torch.zeros(len(keys), 7 - first, dtype=torch.float64)
        for index, pair in enumerate(echoes):
            start = x["sinks"] + index * x["chunk"]
            if start < 7 - first:
                asking, echo = (part.double().tolist() for part in pair)
                bounds = (start, start + x["chunk"], x["sinks"])
                part = oracle.chunk_scores(asking, keys, echo, *bounds)
                expected = torch.maximum(expected, torch.tensor(part).double())
        assert (scores[row][:, :first] == 0).all()
        assert_close(scores[row][:, first:], expected)


@given(kvzip(busy=True))
def test_the_whole_context_is_its_chunks_one_after_the_other(impl, x):
    scores, masks = None, x["repeat_valid"]
    for index, (queries, repeated) in enumerate(zip(x["queries"], x["repeat_keys"], strict=True)):
        settings = (index, x["chunk"], x["sinks"], x["valid"])
        mask = None if masks is None else masks[index]
        scores = impl.kvzip_chunk(queries, x["keys"], repeated, *settings, mask, scores)
    whole = impl.kvzip(**x).scores
    expected = torch.zeros_like(whole) if scores is None else scores
    assert_close(whole, expected.double())


@given(kvzip_chunk(busy=True))
def test_only_the_chunk_gets_scores_and_the_past_is_never_undone(impl, x):
    fresh = impl.kvzip_chunk(**x | dict(past=None))
    assert ((fresh >= 0) & (fresh <= 1)).all()
    for row, first in starts(x):
        start = first + x["sinks"] + x["index"] * x["chunk"]
        position = torch.arange(fresh.shape[-1])
        outside = (position < start) | (position >= start + x["chunk"])
        assert (fresh[row][:, outside] == 0).all()
    if x["past"] is not None:
        assert_equal(impl.kvzip_chunk(**x), torch.maximum(fresh, x["past"]))


@given(kvzip(busy=True))
def test_sinks_and_recent_tokens_are_protected_by_the_mask_alone(impl, x):
    scored = impl.kvzip(**x)
    for row, first, _ in rows(x):
        count = scored.scores.shape[-1] - first
        mask = impl.protected_mask(count, x["sinks"], x["recent"])
        protected = scored.protected[row][:, first:]
        assert_equal(protected.clone(), mask.expand_as(protected).clone())
        assert (scored.scores[row][:, first : first + x["sinks"]] == 0).all()


def test_by_default_a_fiftieth_of_the_real_tokens_is_recent(impl):
    valid = torch.arange(149) >= torch.tensor([[0], [50]])
    nothing = torch.zeros(2, 1, 1, 1)
    keys = torch.zeros(2, 1, 149, 1)
    scored = impl.kvzip((nothing,), keys, (nothing,), valid=valid)
    assert scored.protected.sum(-1).flatten().tolist() == [4 + 2, 4 + 1]
