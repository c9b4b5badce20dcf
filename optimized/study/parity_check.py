"""Check on small random inputs that `optimized` still computes the results of `reference`."""

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import torch
from torch.testing import assert_close

import optimized
import reference
from optimized import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored

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
    spec = reference
    return {
        "attention": lambda kv: kv.attention(queries, keys, values),
        "h2o_mass": lambda kv: kv.h2o_mass(queries, keys),
        "knorm": lambda kv: kv.knorm(keys),
        "snapkv": lambda kv: kv.snapkv(queries, keys),
        "cake": lambda kv: kv.cake(queries, keys),
        "pyramidkv_budgets": lambda kv: kv.pyramidkv_budgets(48, 4, TOKENS),
        "kvzip_chunk": lambda kv: kv.kvzip_chunk(queries, keys, values, 0),
        "expected_attention": lambda kv: kv.expected_attention(
            spec.query_statistics(queries), keys, values, torch.eye(WIDTH)
        ),
        "hub_mask": lambda kv: kv.hub_mask(scores, **shielded),
        "hubkv_refine": lambda kv: kv.hubkv_refine(scores, 0.75, protected, *HubSettings()),
        "nms": lambda kv: kv.nms(scores, *NmsSettings()),
        "graphkv_refine": lambda kv: kv.graphkv_refine(scores, keys, keep, **shielded, **graph),
        "retain": lambda kv: kv.retain(scores, **shielded, keep=keep),
        "select": lambda kv: kv.select(*held, keep=keep),
        "compress": lambda kv: spec.hex_read(kv.compress(*held, store=HexConfig())),
        "hex_read": lambda kv: kv.hex_read(spec.compress(*held, store=HexConfig())),
        "kivi_prefill": lambda kv: spec.kivi_read(kv.kivi_prefill(*some)),
        "kivi_read": lambda kv: kv.kivi_read(spec.kivi_prefill(*some)),
        "gear_prefill": lambda kv: spec.gear_read(kv.gear_prefill(*some)),
        "gear_read": lambda kv: kv.gear_read(spec.gear_prefill(*some)),
    }


def disagreeing_functions() -> Iterator[str]:
    """Yield the names of functions of `optimized` whose results differ from `reference`."""
    for name, call in sample_calls().items():
        try:
            assert_close(call(optimized), call(reference), rtol=RELATIVE, atol=ABSOLUTE)
        except Exception:  # a changed implementation may raise anything
            yield name
