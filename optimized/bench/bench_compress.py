"""Compressors end to end, and compression while decoding: 8 kv heads of 64, 1024 tokens."""

from typing import Any

import torch

import optimized as kv
from optimized.bench.timing_harness import Inputs, compare, normal, timing_test

ALSO = ("select",)
KV_HEADS, WIDTH, TOKENS, KEEP, INTERVAL = 8, 64, 1024, 256, 128
LAYER = f"[{KV_HEADS}, {TOKENS}, {WIDTH}] float32"
GRAPH = kv.GraphSettings(8)


def layer(tokens: int = TOKENS) -> Inputs:
    """Return keys and values."""
    shape = KV_HEADS, tokens, WIDTH
    return dict(keys=normal(0, *shape), values=normal(1, *shape))


def scored(**settings: Any) -> Inputs:
    """Return the keys, values and scores of a layer."""
    protected = torch.arange(TOKENS) < 4
    scores = normal(2, KV_HEADS, TOKENS).abs()
    both = kv.Scored(scores, protected.expand(KV_HEADS, TOKENS))
    return layer() | dict(scored=both, keep=KEEP) | settings


def started(scope: str) -> Inputs:
    """Return a prompt and the settings of its compression."""
    config = kv.DecodingConfig(KEEP, INTERVAL, scope=scope)  # pyright: ignore[reportArgumentType]
    return layer() | dict(scores=normal(2, KV_HEADS, TOKENS).abs(), config=config)


def going_on(scope: str, tokens: int) -> Inputs:
    """Return the compressed cache of a prompt, and new tokens."""
    cache = kv.decoding_start(**started(scope))
    return dict(cache=cache, **layer(tokens), scores=normal(3, KV_HEADS, tokens).abs())


ROWS = [
    compare("compress", LAYER, scored),
    compare("compress", f"{LAYER}, heads apart", lambda: scored(scope="layer")),
    compare("compress", f"{LAYER}, stored as HEX-3",
           lambda: scored(scope="layer", store=kv.hex_preset("HEX-3"))),
    compare("compress", f"{LAYER}, NMS", lambda: scored(refinement=kv.NmsSettings())),
    compare("hubkv_compress", LAYER, lambda: scored(scope="layer", refinement=kv.HubSettings())),
    compare("graphkv_compress", LAYER, lambda: scored(refinement=GRAPH)),
    *(
        row
        for scope in ("head", "layer")
        for row in (
            compare("decoding_start", f"{LAYER}, scope {scope}", lambda at=scope: started(at)),
            compare("decoding_append", f"one token, scope {scope}",
                   lambda at=scope: going_on(at, 1)),
            compare("decoding_append", f"{INTERVAL} tokens, scope {scope}",
                   lambda at=scope: going_on(at, INTERVAL)),
            compare("decoding_read", f"{KEEP} entries a head, scope {scope}",
                   lambda at=scope: dict(cache=going_on(at, 1)["cache"])),
        )
    ),
]  # fmt: skip

test_timing = timing_test(ROWS)
