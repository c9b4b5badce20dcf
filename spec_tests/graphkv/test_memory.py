"""The memory that our graphs allocate; other modules are not tested for it."""

import pytest
import torch

import optimized
from spec_tests.scorers.largest_allocation import largest

SOURCES, TOKENS = 200, 4000


@pytest.mark.parametrize("signal", ["decay", "enhance", "evict"])
@pytest.mark.parametrize("per_head", [False, True], ids=["layer", "head"])
def test_nothing_of_sources_by_tokens_is_allocated(per_head, signal):
    drawn = torch.Generator().manual_seed(0)
    keys, scores = (torch.rand(2, TOKENS, *width, generator=drawn) for width in ([4], []))
    graph = dict(count=4, fraction=1.0, per_head=per_head, signal=signal)
    work = dict(scores=scores, keys=keys, keep=SOURCES, **graph)
    assert largest(optimized.graphkv_refine, **work) < SOURCES * TOKENS / 4
