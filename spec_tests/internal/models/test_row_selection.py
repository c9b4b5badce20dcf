"""Selecting batch rows of a cache: beams, several sequences, dropped and repeated prompts."""

import pytest
import torch

import optimized
from spec_tests.internal.models.random_model import (
    TOKENS,
    attached_model,
    generate,
    models,
    prompts,
    stock_model,
)

SYSTEMS = {
    "full": {},
    "streaming_llm": dict(keep=9),
    "snapkv@layer": dict(keep=9, settings={"window": 4}),
    "kvzip": dict(keep=9),
}
every_system = pytest.mark.parametrize("system", SYSTEMS)
every_kind = pytest.mark.parametrize("kind", ["llama", "gemma2", "lfm2"])
ROWS = torch.tensor([1, 0, 1])


def read_cache(kind: str, system: str, rows=None):
    """Return a cache of padded prompts or some rows of them, all ids with a question, the mask."""
    ids, mask = prompts(4)
    ids, mask = (ids, mask) if rows is None else (ids[rows], mask[rows])
    how = SYSTEMS[system]
    cache = models.compressed(
        attached_model(kind), system, ids[:, :TOKENS], mask[:, :TOKENS], **how
    )
    return cache, ids, mask


@every_system
@every_kind
@pytest.mark.parametrize("asked", [0, 4])
def test_rows_that_are_taken_go_on_as_though_they_had_been_read(kind, system, asked):
    cache, _, _ = read_cache(kind, system)
    cache.batch_select_indices(ROWS)
    expected, same, flags = read_cache(kind, system, ROWS)
    same, flags = same[:, : TOKENS + asked], flags[:, : TOKENS + asked]
    actual = generate(attached_model(kind), same, flags, cache)
    assert torch.equal(actual, generate(attached_model(kind), same, flags, expected))
    assert optimized.stored_bytes(cache.layers) <= 1.01 * optimized.stored_bytes(expected.layers)


@every_kind
def test_beams_over_a_whole_cache_are_those_of_the_model(kind):
    ids, mask = prompts(4)
    cache, _, _ = read_cache(kind, "full")
    how = dict(num_beams=3, num_return_sequences=2)
    expected = generate(stock_model(kind), ids, mask, **how)
    assert torch.equal(generate(attached_model(kind), ids, mask, cache, **how), expected)


@every_system
def test_several_sequences_of_a_prompt_come_from_one_cache(system):
    cache, ids, mask = read_cache("llama", system)
    how = dict(do_sample=True, num_return_sequences=3, top_k=1)
    out = generate(attached_model("llama"), ids, mask, cache, **how)
    single, _, _ = read_cache("llama", system)
    expected = generate(attached_model("llama"), ids, mask, single).repeat_interleave(3, 0)
    assert torch.equal(out, expected)
    assert cache.get_seq_length() == ids.shape[1] + 7


@pytest.mark.parametrize("system", ["gear", "h2o"])
def test_rows_of_what_is_stored_together_are_refused(system):
    ids, mask = prompts(4)
    how = dict(keep=9, interval=4) if system == "h2o" else {}
    cache = models.compressed(
        attached_model("llama"), system, ids[:, :TOKENS], mask[:, :TOKENS], **how
    )
    with pytest.raises(NotImplementedError, match=r"rearranging rows .* or take a system that evi"):
        generate(attached_model("llama"), ids, mask, cache, num_beams=2)
    assert generate(attached_model("llama"), ids, mask, cache).shape == (2, TOKENS + 12)
