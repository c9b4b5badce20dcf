"""Inputs of whole compressors: caches, scores, budgets, settings."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import GraphSettings, HexConfig, HubSettings, NmsSettings, Scored
from spec_tests.inputs.compress_refusals import REFUSALS
from spec_tests.inputs.draw import real
from spec_tests.inputs.graphkv_draw import lattice
from spec_tests.inputs.retain import AXES, pooled

__all__ = ["INPUTS", "REFUSALS"]

WIDTH = 4
KINDS = ("kk", "qk", "qq", "kv", "vv")

hub_settings = st.sampled_from([HubSettings(), HubSettings(radius=1, gamma=0.25, tau=1.0)])
# factors that a grid number keeps exact when it is multiplied by them
nms_settings = st.sampled_from([NmsSettings(1, 0.5), NmsSettings(3, 0.25), NmsSettings(0, 0.5)])

maybe, never = st.booleans(), st.just(False)


@st.composite
def graph_settings(draw, per_head=maybe, kinds=("kk", "kv", "vv"), window=never):
    """A graph of few neighbours, on edges that are exact."""
    return GraphSettings(
        count=draw(st.integers(0, 3)),
        kind=draw(st.sampled_from(kinds)),
        strength=draw(st.sampled_from([0.5, 1.0])),
        signal=draw(st.sampled_from(["decay", "evict"])),
        per_head=draw(per_head),
        spare_sources=draw(st.booleans()),
        clamp=draw(st.booleans()),
        exclude_window=draw(window),
    )


refinements = st.none() | hub_settings | nms_settings | graph_settings()


@st.composite
def leads(draw, scope):
    """Everything before the heads."""
    more, empty = (
        ([(2, 2), (2,), (1, 2)], (2, 0)) if scope == "model" else ([(2,), (), (1, 2)], (0,))
    )
    return draw(st.sampled_from([*more, *more, *more, empty]))


# so that most examples have something to choose from
few = st.sampled_from([*range(3, 9), *range(3, 9), 2, 1, 0])
heads = st.sampled_from([2, 1])
seeds = st.integers(0, 2**16).map(lambda seed: torch.Generator().manual_seed(seed))


@st.composite
def vectors(draw, *shape):
    """Keys or values whose cosines are exact, of heads apart and of heads side by side."""
    *batch, heads, tokens, width = shape
    side = draw(lattice(*batch, tokens, heads * width))
    return side.unflatten(-1, (heads, width)).movedim(-2, -3).contiguous()


@st.composite
def importance(draw, *shape, smooth):
    """Scores: smooth ones where head statistics decide between heads, else many ties."""
    if smooth:
        return draw(real(*shape)).abs()
    return torch.randint(0, 9, shape, generator=draw(seeds)) / 8


@st.composite
def marks(draw, *shape):
    """A mask of which about a quarter is true."""
    return torch.rand(shape, generator=draw(seeds)) < 0.25


@st.composite
def paddings(draw, *rows, tokens):
    """True from some place on in each row, now and then nowhere."""
    starts = torch.randint(0, tokens + 1, (*rows, 1), generator=draw(seeds))
    return torch.arange(tokens) >= starts


def spread(valid: Tensor, shape: torch.Size, scope: str) -> Tensor:
    """Return the mask of real tokens over all that is scored."""
    valid = valid[..., None, :]
    return (valid[None] if scope == "model" else valid).expand(shape)


@st.composite
def scored_caches(draw, scope, refinement, smooth=False, marked=True):
    """Keys, values, scores, and perhaps padding."""
    lead, tokens = draw(leads(scope)), draw(few)
    shape = (*lead, draw(heads), tokens)
    smooth = smooth or (isinstance(refinement, HubSettings) and scope != "head")
    scores = draw(importance(*shape, smooth=smooth))
    protected = torch.zeros(shape, dtype=torch.bool)
    if marked and draw(st.booleans()):
        protected = draw(marks(*shape))
    rows = lead[1:] if scope == "model" else lead
    valid = draw(st.none() | paddings(*rows, tokens=tokens))
    if valid is not None:
        there = spread(valid, scores.shape, scope)
        scores, protected = scores.where(there, 0), protected & there
    return dict(
        keys=draw(vectors(*shape, WIDTH)),
        values=draw(vectors(*shape, WIDTH)),
        scored=Scored(scores, protected),
        valid=valid,
    )


@st.composite
def budgets(draw, needed: Tensor, sizes: Tensor, pool: int) -> Any:
    """A budget in one of its forms, that holds what each pool needs."""
    least = int(needed.max()) if needed.numel() else 0
    form = draw(st.sampled_from(["number", "tensor", "ratio"]))
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
def compress(draw, scopes=scopes, refinements=refinements):
    """Every refinement in every scope; the rest is evicted."""
    scope, refinement = draw(scopes), draw(refinements)
    x = draw(scored_caches(scope, refinement))
    budget = draw(budgets(*pools_of(x, scope)))
    return x | budget | dict(scope=scope, refinement=refinement, queries=None, store=None)


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
    length = draw(st.none() | st.integers(0, 3))
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
    hubkv_compress=hubkv_compress(),
    graphkv_compress=graphkv_compress(),
)
