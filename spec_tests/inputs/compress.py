"""Inputs of whole compressors: caches, scores, budgets, settings."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import GraphSettings, HexConfig, HubSettings
from spec_tests.inputs.compress_draw import (
    KINDS,
    WIDTH,
    graph_settings,
    hub_settings,
    nms_settings,
    refinements,
    scored_caches,
    seeds,
    spread,
    vectors,
)
from spec_tests.inputs.compress_refusals import REFUSALS
from spec_tests.inputs.retain import AXES, pooled

__all__ = ["INPUTS", "REFUSALS"]

FORMS = ("number", "tensor", "ratio")


@st.composite
def budgets(draw, needed: Tensor, sizes: Tensor, pool: int, forms=FORMS) -> Any:
    """A budget in one of its forms, that holds what each pool needs."""
    least = int(needed.max()) if needed.numel() else 0
    form = draw(st.sampled_from(forms))
    if form == "number":
        return dict(keep=draw(st.integers(least, pool)), ratio=None)
    if form == "tensor":
        each = torch.randint(least, pool + 1, needed.shape, generator=draw(seeds))
        return dict(keep=each, ratio=None)
    roomy = [c for c in range(101) if ((sizes * (100 - c)) // 100 >= needed).all()]
    return dict(keep=None, ratio=draw(st.sampled_from(roomy)) / 100)


def pools_of(x: dict[str, Any], scope: str) -> tuple[Tensor, Tensor, int]:
    """Return the protected entries of each pool, its real entries, and its size."""
    scores, protected = x["scored"]
    there = torch.ones_like(protected)
    if x["valid"] is not None:
        there = spread(x["valid"], scores.shape, scope)
    pools, shields = pooled(there, scope), pooled(protected, scope)
    return shields.sum(-1), pools.sum(-1), pools.shape[-1]


scopes = st.sampled_from([*AXES])


@st.composite
def hex_configs(draw, padded=False):
    """Small blocks, with every way to treat the recent window."""
    return HexConfig(
        bits=draw(st.integers(2, 4)),
        density=draw(st.sampled_from([0.0, 0.0, 1.0])),
        heavy=draw(st.sampled_from([0.0, 0.25, 0.5])),
        recent=draw(st.integers(0, 2)),
        block=draw(st.sampled_from([1, 2, 4])),
        mode="append" if padded else draw(st.sampled_from(["append", "full", "oracle"])),
        value_group=draw(st.sampled_from(["token", "head"])),
        normalize=draw(st.booleans()),
        outside_recent=draw(st.booleans()),
        carry_recent=draw(st.booleans()),
    )


@st.composite
def compress(draw, scopes=scopes, unpadded=True, forms=FORMS):
    """Every refinement in every scope; the rest is evicted."""
    scope, refinement = draw(scopes), draw(refinements | graph_settings(kinds=("qk", "qq")))
    x = draw(scored_caches(scope, refinement, unpadded=unpadded))
    compared = isinstance(refinement, GraphSettings) and "q" in refinement.kind
    queries = draw(vectors(*x["keys"].shape)) if compared else None
    budget = draw(budgets(*pools_of(x, scope), forms))
    return x | budget | dict(scope=scope, refinement=refinement, queries=queries, store=None)


@st.composite
def compress_into_hex(draw, scopes=scopes, refinements=refinements):
    """Every refinement in every scope; the rest is quantised."""
    scope, refinement = draw(scopes), draw(refinements)
    x = draw(scored_caches(scope, refinement, smooth=isinstance(refinement, HubSettings)))
    config = draw(hex_configs(padded=x["valid"] is not None))
    rows, tokens = x["scored"].scores.shape[:-2], x["keys"].shape[-2]
    layers = rows[0] if scope == "model" else 1
    held = config.recent if config.carry_recent else 0
    pool = layers * (max(0, tokens - held) // config.block * config.block)
    none = torch.zeros(rows[1:] if scope == "model" else rows, dtype=torch.int64)
    budget = draw(st.just(dict(keep=None, ratio=None)) | budgets(none, none, pool))
    return x | budget | dict(scope=scope, refinement=refinement, queries=None, store=config)


@st.composite
def hubkv_compress(draw):
    """A budget that holds both ends, so that nothing is clipped."""
    scope, refinement = draw(scopes), draw(hub_settings)
    x = draw(scored_caches(scope, refinement))
    sinks, recent = draw(st.integers(0, 2)), draw(st.none() | st.integers(0, 2))
    needed, sizes, pool = pools_of(x, scope)
    heads = pool // max(1, x["keys"].shape[-2])
    needed = torch.minimum(needed + heads * (sinks + (recent or 0)), sizes)
    budget = draw(budgets(needed, sizes, pool))
    ends = dict(sinks=sinks, recent=recent)
    return x | budget | ends | dict(scope=scope, refinement=refinement, store=None)


@st.composite
def hubkv_compress_into_hex(draw):
    """Both ends beside the budget, as HEX keeps them."""
    x = draw(compress_into_hex(refinements=hub_settings))
    del x["queries"]
    return x | dict(sinks=draw(st.integers(0, 2)), recent=draw(st.none() | st.integers(0, 2)))


@st.composite
def graphkv_compress(draw):
    """One budget, or one a layer."""
    refinement = draw(graph_settings())
    x = draw(scored_caches("head", refinement, marked=False))
    tokens, lead = x["keys"].shape[-2], x["keys"].shape[:-3]
    layers = lead[0] if lead else 0
    each = st.lists(st.integers(0, tokens), min_size=layers, max_size=layers)
    forms = [st.fixed_dictionaries(dict(keep=st.integers(0, tokens), ratio=st.none()))]
    forms += [st.fixed_dictionaries(dict(keep=st.none(), ratio=st.sampled_from([0.0, 0.5, 0.9])))]
    if lead:
        forms += [each.map(lambda keep: dict(keep=torch.tensor(keep, dtype=torch.int64)))]
    length = draw(st.sampled_from([1000, 2000, 3500, 2999, 999, 0, None]))
    return x | draw(st.one_of(forms)) | dict(refinement=refinement, length=length)


@st.composite
def refine(draw):
    """Any refinement of a batch of layers."""
    refinement = draw(st.none() | hub_settings | nms_settings | graph_settings(kinds=KINDS))
    x = draw(scored_caches("head", None))
    lead, (heads, tokens) = x["keys"].shape[:-3], x["keys"].shape[-3:-1]
    return dict(
        scored=x["scored"],
        refinement=refinement,
        keep=draw(st.integers(0, tokens)),
        ratio=draw(st.none() | st.sampled_from([0.0, 0.25, 0.9, 1.0])),
        keys=x["keys"],
        values=x["values"],
        queries=draw(vectors(*lead, heads, tokens, WIDTH)),
    )


INPUTS = dict(
    refine=refine(),
    compress=compress() | compress_into_hex(),
    hubkv_compress=hubkv_compress() | hubkv_compress_into_hex(),
    graphkv_compress=graphkv_compress(),
)
