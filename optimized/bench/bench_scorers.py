"""Base scorers except SnapKV: 8 kv heads of 128 channels, 32 query heads, 1024 tokens."""

import torch

import optimized as kv
from optimized.bench.timing_harness import Inputs, compare, normal, timing_test

KV_HEADS, QUERY_HEADS, WIDTH, TOKENS, WINDOW, HIDDEN = 8, 32, 128, 1024, 32, 1024
CHUNK = TOKENS // 2
LAYER = f"[{KV_HEADS}, {TOKENS}, {WIDTH}] float32"


def asked(queries: int = WINDOW) -> Inputs:
    """Return queries and the keys of a layer."""
    return dict(
        queries=normal(0, QUERY_HEADS, queries, WIDTH), keys=normal(1, KV_HEADS, TOKENS, WIDTH)
    )


def moments() -> Inputs:
    """Return the query statistics for expected attention, and a layer."""
    return dict(
        statistics=kv.query_statistics(normal(0, QUERY_HEADS, TOKENS, WIDTH)),
        keys=normal(1, KV_HEADS, TOKENS, WIDTH),
        values=normal(2, KV_HEADS, TOKENS, WIDTH),
        rotation=kv.mean_rotation(torch.rand(WIDTH // 2), TOKENS, 512),
    )


def repetition() -> Inputs:
    """Return a layer while the model repeats the first chunk of it."""
    return asked(CHUNK) | dict(repeat_keys=normal(3, KV_HEADS, CHUNK, WIDTH), index=0, chunk=CHUNK)


def repetitions() -> Inputs:
    """Return a layer, and the queries and keys of all chunks of a repetition."""
    return dict(
        queries=tuple(normal(i, QUERY_HEADS, CHUNK, WIDTH) for i in range(2)),
        keys=normal(1, KV_HEADS, TOKENS, WIDTH),
        repeat_keys=tuple(normal(3 + i, KV_HEADS, CHUNK, WIDTH) for i in range(2)),
        chunk=CHUNK,
    )


def gate(kv_heads: int = KV_HEADS) -> kv.GateWeights:
    """Return random weights of a FastKVzip gate with 4 queries a key head."""
    group, dim = QUERY_HEADS // KV_HEADS, 16
    return kv.GateWeights(
        normal(0, kv_heads, group, dim, HIDDEN) / 32,
        normal(1, kv_heads, group, dim),
        torch.ones(dim),
        normal(2, kv_heads, dim, HIDDEN) / 32,
        torch.ones(dim),
        normal(3, kv_heads, 16, dim),
        normal(4, kv_heads, group),
    )


def mass() -> Inputs:
    """Return the attention mass of a layer's tokens."""
    return dict(mass=normal(3, KV_HEADS, TOKENS).abs(), keep=512)


ROWS = [
    compare("cake", f"{LAYER}, a window of {WINDOW}", asked),
    compare("cake_preference", f"{LAYER}, a window of {WINDOW}", asked),
    compare("cake_cascade", "32 layers", lambda: dict(preferences=normal(0, 32).abs())
           | dict(keep=512, tokens=TOKENS)),
    compare("query_statistics", f"[{QUERY_HEADS}, {TOKENS}, {WIDTH}] float32",
           lambda: dict(queries=normal(0, QUERY_HEADS, TOKENS, WIDTH))),
    compare("expected_attention", LAYER, moments),
    compare("kvzip_chunk", f"{LAYER}, a chunk of {CHUNK}", repetition),
    compare("kvzip", f"{LAYER}, chunks of {CHUNK}", repetitions),
    compare("fastkvzip", f"[{TOKENS}, {HIDDEN}] float32",
           lambda: dict(hidden=normal(5, TOKENS, HIDDEN), weights=gate())),
    compare("h2o", f"[{KV_HEADS}, {TOKENS}] float32", mass),
    compare("streaming_llm", LAYER, lambda: dict(keys=normal(1, KV_HEADS, TOKENS, WIDTH))),
]  # fmt: skip

test_timing = timing_test(ROWS)
