"""Eviction by hand: bytes, budgets and scopes of `evict` and `compress`."""

import pytest
import torch

import optimized
import reference
from spec_tests.accuracy import assert_equal
from spec_tests.internal.models.random_model import PADDING, TOKENS, read

SCORES = torch.rand(2, 2, 2, TOKENS, generator=torch.Generator().manual_seed(0))
"""Of every layer, row, head and token."""
SCORED = [optimized.Scored(one, torch.zeros_like(one, dtype=torch.bool)) for one in SCORES]
every_scope = pytest.mark.parametrize("scope", ["head", "layer", "model"])


def compressed(compressor, padded: bool = True, **how):
    """Return the layers of a cache after one of the compressors."""
    cache = read("llama", padded)[0].cache
    cache.compress(SCORED, compressor, **how)
    return [(layer.whole, layer.old) for layer in cache.evictable()]


@every_scope
@pytest.mark.parametrize("padded", [False, True])
def test_half_of_the_entries_are_half_of_the_bytes(scope, padded):
    prompt, _, _ = read("llama", padded)
    cache, start = prompt.cache, PADDING * padded
    entry, flags = 2 * 8 * 4, 2 * TOKENS * padded  # key and value of width 8, and the mask
    assert cache.nbytes == 2 * 2 * 2 * TOKENS * entry + flags
    kept = torch.zeros(2, 2, 2, TOKENS, dtype=torch.bool)
    for row, first in ((0, 0), (1, start)):  # each row without its padding
        real = SCORES[:, row, :, first:]
        kept[:, row, :, first:] = reference.retain(real, ratio=0.5, scope=scope)
    cache.evict(kept)
    offsets = sum(x.old.offsets.numel() * 8 for x in cache.evictable() if x.old is not None)
    assert cache.nbytes == int(kept.sum()) * entry + offsets + flags
    again = compressed(optimized.compress, padded, scope=scope, ratio=0.5)
    assert_equal(again, [(layer.whole, layer.old) for layer in cache.evictable()])


@pytest.mark.parametrize("how", [{}, {"valid": read()[0].valid}], ids=["known", "told"])
@pytest.mark.parametrize("kv", [reference, optimized], ids=["reference", "optimized"])
def test_a_compressor_keeps_its_own_default_scope_and_leaves_padding_out(kv, how):
    how = dict(ratio=0.5, sinks=1, recent=1, **how)
    expected = compressed(optimized.hubkv_compress, **how, scope="model")
    assert_equal(compressed(kv.hubkv_compress, **how), expected)


def test_budgets_are_what_each_head_of_a_row_keeps():
    budgets, graph = torch.tensor([[9, 9], [3, 3]]), optimized.GraphSettings(4)
    layers = compressed(optimized.compress, padded=False, budgets=budgets)
    assert [whole[0].shape[2] for whole, _ in layers] == [9, 3]
    how = dict(budgets=torch.tensor([[9, 4], [3, 8]]), refinement=graph)
    layers = compressed(optimized.graphkv_compress, padded=False, **how)
    held = [old.offsets.diff().tolist() for _, old in layers if old is not None]
    assert held == [[9, 9, 4, 4], [3, 3, 8, 8]]
