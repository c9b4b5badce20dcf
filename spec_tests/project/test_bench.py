"""What the benchmarks race against does the same work."""

import pytest

import optimized
from optimized.bench.bench_snapkv import KEEP, TOKENS, layer, scores, usual_scores
from spec_tests.accuracy import assert_optimal


@pytest.mark.parametrize("tokens", TOKENS[:2])
def test_the_usual_snapkv_ranks_as_ours_but_for_rounding(tokens):
    x = layer(tokens)
    assert_optimal(optimized.retain(scores(**x), keep=KEEP), usual_scores(**x))
