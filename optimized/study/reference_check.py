"""Check on small random inputs that `optimized` still computes the results of `reference`."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.testing import assert_close

import optimized
import reference
from optimized import GateWeights, GraphSettings, HexConfig, HubSettings, NmsSettings, Scored

HEADS, TOKENS, WIDTH = 2, 96, 64
"""The fewest tokens and channels for which HEX has a mask."""
RELATIVE, ABSOLUTE = 1e-4, 1e-5
"""Tolerances for rounding; masks and counts must be equal."""


def sample_calls() -> dict[str, Callable[[ModuleType], Any]]:
    """Return a call of each function that the command uses, by the function's name."""
    draw = torch.Generator().manual_seed(0)
    queries, keys, values = torch.randn(3, 1, HEADS, TOKENS, WIDTH, generator=draw)
    scores = torch.rand(1, HEADS, TOKENS, generator=draw)
    protected = torch.zeros_like(scores, dtype=torch.bool)
    protected[..., :4] = True
    shielded: dict[str, Any] = dict(protected=protected)
    graph, keep = GraphSettings(4, per_head=True, clamp=True)._asdict(), TOKENS // 4
    held = keys, values, Scored(scores, protected)
    some = keys[:, :1, :64, :32], values[:, :1, :64, :32]
    stream = queries[0], keys[0], values[0]
    channels = torch.randn(5, HEADS * WIDTH, generator=draw)  # of a gate with one query a head
    gate = GateWeights(
        channels[:4].view(HEADS, 1, 2, -1), scores[0, :, None, :2], torch.ones(2),
        channels[1:].view(HEADS, 2, -1), torch.ones(2), keys[0, :, :3, :2], scores[0, :, :1],
    )  # fmt: skip
    spec = reference
    return {
        "attention": lambda kv: kv.attention(queries, keys, values),
        "h2o_mass": lambda kv: kv.h2o_mass(queries, keys),
        "knorm": lambda kv: kv.knorm(keys),
        "snapkv": lambda kv: kv.snapkv(queries, keys),
        "h2o": lambda kv: kv.h2o(scores, keep),
        "fastkvzip": lambda kv: kv.fastkvzip(keys[0].movedim(0, 1).flatten(1), gate),
        "cake": lambda kv: kv.cake(queries, keys),
        "cake_preference": lambda kv: kv.cake_preference(queries, keys),
        "cake_budgets": lambda kv: kv.cake_budgets(scores[0, :, 0], keep, TOKENS, window=8),
        "query_statistics": lambda kv: kv.query_statistics(queries),
        "mean_rotation": lambda kv: kv.mean_rotation(scores[0, 0, : WIDTH // 2], TOKENS, 8),
        "pyramidkv_budgets": lambda kv: kv.pyramidkv_budgets(48, 4, TOKENS),
        "kvzip_chunk": lambda kv: kv.kvzip_chunk(queries, keys, values, 0),
        "expected_attention": lambda kv: kv.expected_attention(
            spec.query_statistics(queries), keys, values, torch.eye(WIDTH)
        ),
        "streaming_llm": lambda kv: kv.streaming_llm(keys),
        "hub_mask": lambda kv: kv.hub_mask(scores, **shielded),
        "hubkv_refine": lambda kv: kv.hubkv_refine(scores, 0.75, protected, *HubSettings()),
        "nms": lambda kv: kv.nms(scores, *NmsSettings()),
        "graphkv_refine": lambda kv: kv.graphkv_refine(scores, keys, keep, **shielded, **graph),
        "protected_mask": lambda kv: kv.protected_mask(TOKENS),
        "ranking": lambda kv: kv.ranking(scores),
        "retain": lambda kv: kv.retain(scores, **shielded, keep=keep),
        "evict": lambda kv: kv.evict(keys, values, ~protected),
        "select": lambda kv: kv.select(*held, keep=keep),
        "compress": lambda kv: spec.hex_read(kv.compress(*held, store=HexConfig())),
        "hex_read": lambda kv: kv.hex_read(spec.compress(*held, store=HexConfig())),
        "kivi_prefill": lambda kv: spec.kivi_read(kv.kivi_prefill(*some)),
        "kivi_read": lambda kv: kv.kivi_read(spec.kivi_prefill(*some)),
        "gear_prefill": lambda kv: spec.gear_read(kv.gear_prefill(*some)),
        "gear_read": lambda kv: kv.gear_read(spec.gear_prefill(*some)),
        "attention_weights": lambda kv: kv.attention_weights(queries, keys),
        "content_series": lambda kv: kv.content_series(scores),
        "autocorrelation": lambda kv: kv.autocorrelation(scores, 8),
        "segment_coverage": lambda kv: kv.segment_coverage(spec.ranking(scores), TOKENS, 8),
        "uniform_spread": lambda kv: kv.uniform_spread(TOKENS, 8),
        "cosine_matrix": lambda kv: kv.cosine_matrix(keys),
        "cosine_distribution": lambda kv: kv.cosine_distribution(keys, 8),
        "principal_components": lambda kv: kv.principal_components(keys),
        "sensitivity": lambda kv: kv.sensitivity(*stream, TOKENS // 2, [HexConfig()])[0].error,
    }


def disagreeing_functions() -> Iterator[str]:
    """Yield the names of functions of `optimized` whose results differ from `reference`."""
    for name, call in sample_calls().items():
        try:
            assert_close(call(optimized), call(reference), rtol=RELATIVE, atol=ABSOLUTE)
        except Exception:  # a changed implementation may raise anything
            yield name
