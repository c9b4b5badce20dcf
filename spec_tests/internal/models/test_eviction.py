"""An evicted cache is exact on the entries left, smaller in memory, and keeps true positions."""

import pytest
import torch
from torch import Tensor

import optimized
import reference
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import (
    PADDING,
    TOKENS,
    attached_model,
    every_main_architecture,
    generate,
    logits_after,
    models,
    new_model,
    prompts,
    read,
    stock_model,
)

every_scope = pytest.mark.parametrize("scope", ["head", "layer", "model"])


def scores(seed: int = 0) -> Tensor:
    """Return random scores of every layer, row, head and token."""
    return torch.rand(2, 2, 2, TOKENS, generator=torch.Generator().manual_seed(seed))


def sets_to_keep(prompt, ratio: float, scope: str, kv=optimized) -> Tensor:
    """Return the masks that `retain` returns for each row without its padding."""
    kept = torch.zeros(2, 2, 2, TOKENS, dtype=torch.bool)
    for row in range(2):
        start = 0 if prompt.valid is None else int((~prompt.valid[row]).sum())
        real = scores()[:, row, :, start:]
        kept[:, row, :, start:] = kv.retain(real, ratio=ratio, scope=scope)
    return kept


@every_main_architecture
@pytest.mark.parametrize("padded", [False, True], ids=["dense", "ragged"])
def test_ratio_0_generates_what_the_full_cache_does(kind, padded):
    prompt, ids, mask = read(kind, padded)
    expected = generate(stock_model(kind), ids, mask)
    prompt.cache.evict(sets_to_keep(prompt, 0.0, "layer"))
    assert_equal(generate(attached_model(kind), ids, mask, prompt.cache), expected)


@every_scope
def test_the_rows_of_a_padded_batch_generate_what_each_does_alone(scope):
    prompt, ids, mask = read("llama", padded=True)
    kept = sets_to_keep(prompt, 0.5, scope)
    prompt.cache.evict(kept)
    together = generate(attached_model("llama"), ids, mask, prompt.cache)
    for row, start in ((0, 0), (1, PADDING)):
        one = models.prefill(attached_model("llama"), ids[row : row + 1, start:TOKENS])
        one.cache.evict(kept[:, row : row + 1, :, start:])
        mine, every = ids[row : row + 1, start:], torch.ones(1, ids.shape[1] - start).long()
        alone = generate(attached_model("llama"), mine, every, one.cache)
        assert_equal(together[row : row + 1, start:], alone)


@every_scope
@pytest.mark.parametrize("padded", [False, True])
def test_half_of_the_entries_are_half_of_the_bytes(scope, padded):
    prompt, _, _ = read("llama", padded)
    cache, real = prompt.cache, 2 * TOKENS - PADDING * padded
    flags = 2 * TOKENS * padded
    assert cache.nbytes == 2 * TOKENS * bytes_of_a_token() + flags
    kept = sets_to_keep(prompt, 0.5, scope)
    cache.evict(kept)
    offsets = sum(
        layer.old.offsets.numel() * 8 for layer in cache.evictable() if layer.old is not None
    )
    per_head = bytes_of_a_token() // 4
    assert cache.nbytes == int(kept.sum()) * per_head + offsets + flags
    assert int(kept.sum()) * 2 <= 4 * real


def bytes_of_a_token() -> int:
    """Return the bytes of keys and values: two layers, two heads of width 8, float32."""
    return 2 * 2 * 2 * 8 * 4


def test_positions_go_on_where_the_prompt_ended():
    prompt, _, _ = read("llama", padded=False)
    prompt.cache.evict(sets_to_keep(prompt, 0.9, "head"))
    assert prompt.cache.get_seq_length() == TOKENS
    assert prompt.cache.get_mask_sizes(3, 0) == (TOKENS + 3, 0)


def test_what_is_undone_was_never_read():
    prompt, ids, mask = read("llama", padded=True)
    prompt.cache.evict(sets_to_keep(prompt, 0.5, "model"))
    with prompt.cache.undone():
        first = generate(attached_model("llama"), ids, mask, prompt.cache)
    assert prompt.cache.get_seq_length() == TOKENS
    assert_equal(generate(attached_model("llama"), ids, mask, prompt.cache), first)


@every_scope
@pytest.mark.parametrize("kv", [reference, optimized], ids=["reference", "optimized"])
def test_a_whole_compressor_keeps_the_sets_of_its_implementation(scope, kv):
    prompt, ids, mask = read("llama", padded=True)
    again, _, _ = read("llama", padded=True)
    scored = [kv.Scored(s, torch.zeros_like(s, dtype=torch.bool)) for s in scores()]
    prompt.cache.compress(scored, kv.compress, scope=scope, ratio=0.5)
    again.cache.evict(sets_to_keep(again, 0.5, scope, reference))
    for mine, other in zip(prompt.cache.evictable(), again.cache.evictable(), strict=True):
        assert_equal(mine.whole, other.whole)
        assert_equal(mine.old, other.old)
    assert_equal(
        generate(attached_model("llama"), ids, mask, prompt.cache),
        generate(attached_model("llama"), ids, mask, again.cache),
    )


def test_budgets_of_layers_are_what_each_head_keeps():
    prompt, _, _ = read("llama", padded=False)
    scored = [optimized.Scored(s, torch.zeros_like(s, dtype=torch.bool)) for s in scores()]
    budgets = torch.tensor([[9, 9], [3, 3]])
    prompt.cache.compress(scored, optimized.compress, budgets=budgets)
    assert [layer.whole[0].shape[2] for layer in prompt.cache.evictable()] == [9, 3]


def test_budgets_of_graphkv_are_what_each_head_of_a_row_keeps():
    prompt, _, _ = read("llama", padded=False)
    scored = [optimized.Scored(s, torch.zeros_like(s, dtype=torch.bool)) for s in scores()]
    budgets, settings = torch.tensor([[9, 4], [3, 8]]), optimized.GraphSettings(4)
    prompt.cache.compress(scored, optimized.graphkv_compress, budgets=budgets, refinement=settings)
    held = [layer.old.offsets.diff().tolist() for layer in prompt.cache.evictable() if layer.old]
    heads = scores()[0].shape[1]
    assert held == [[9] * heads + [4] * heads, [3] * heads + [8] * heads]


def test_a_reset_cache_is_a_new_one():
    prompt, ids, mask = read("llama", padded=True)
    prompt.cache.evict(sets_to_keep(prompt, 0.5, "layer"))
    prompt.cache.reset()
    assert (prompt.cache.get_seq_length(), prompt.cache.nbytes) == (0, 0)
    with pytest.raises(ValueError, match="must hold a prompt that `prefill` read, got an empty"):
        generate(attached_model("llama"), ids, mask, prompt.cache)


def test_sampling_runs_on_what_is_left():
    prompt, ids, mask = read("llama", padded=True)
    prompt.cache.evict(sets_to_keep(prompt, 0.0, "head"))
    expected = generate(stock_model("llama"), ids, mask, do_sample=True, top_k=5)
    actual = generate(attached_model("llama"), ids, mask, prompt.cache, do_sample=True, top_k=5)
    assert_equal(actual, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
@every_scope
def test_keys_and_values_keep_the_dtype_of_the_model(scope, dtype):
    ids, mask = prompts(4)
    model = models.attach(new_model("llama").to(dtype))
    prompt = models.prefill(model, ids[:, :TOKENS], mask[:, :TOKENS])
    flags = 2 * TOKENS
    before = prompt.cache.nbytes - flags
    prompt.cache.evict(sets_to_keep(prompt, 0.5, scope))
    assert logits_after(model, prompt.cache, ids, mask, 4).dtype == dtype
    for layer in prompt.cache.evictable():
        assert layer.whole[0].dtype == dtype
        assert layer.old is None or layer.old[0].dtype == dtype
    assert before == 2 * TOKENS * bytes_of_a_token() * dtype.itemsize // 4


@pytest.mark.parametrize("kind", ["llama", "gemma2"])
def test_new_tokens_follow_entries_that_were_narrowed_to_16_bits(kind):
    prompt, ids, mask = read(kind)
    for layer in prompt.cache.evictable():
        layer.keys, layer.values = (x.half() for x in layer.whole)
    kept = sets_to_keep(prompt, 0.5, "layer")[: len(prompt.cache.evictable())]
    prompt.cache.evict(kept)
    out = logits_after(attached_model(kind), prompt.cache, ids, mask, 4)
    exact, _, _ = read(kind)
    exact.cache.evict(kept)
    expected = logits_after(attached_model(kind), exact.cache, ids, mask, 4)
    assert_equal(out.argmax(-1), expected.argmax(-1))
