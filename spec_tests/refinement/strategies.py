"""Strategies for scores to refine: settings, rows, vectors, padding."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import GraphSettings, HubSettings, NmsSettings, Scored
from spec_tests.graphkv.graph.strategies import KINDS, lattice
from spec_tests.strategies import (
    NAN,
    NEGATIVE,
    Refusal,
    gaussian_tensor,
    generators,
    importance,
    longer,
    strategy_or_none,
)

WIDTH = 4

hub_settings = st.sampled_from([HubSettings(), HubSettings(radius=1, gamma=0.25, tau=1.0)])
# the products of a grid number and one of these factors are exact
nms_settings = st.sampled_from([NmsSettings(1, 0.5), NmsSettings(3, 0.25), NmsSettings(0, 0.5)])

either, never = st.booleans(), st.just(False)


@st.composite
def graph_settings(draw, per_head=either, kinds=("kk", "kv", "vv"), window=never):
    """Graph settings with few neighbours, for vectors with exact cosines."""
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
def leading_shapes(draw, scope):
    """The axes before the heads."""
    shapes, empty = (
        ([(2, 2), (2,), (1, 2)], (2, 0)) if scope == "model" else ([(2,), (), (1, 2)], (0,))
    )
    return draw(st.sampled_from([*shapes, *shapes, *shapes, empty]))


# mostly several, so that there is something to choose from
few = st.sampled_from([*range(3, 9), *range(3, 9), 2, 1, 0])
heads = st.sampled_from([2, 1])


@st.composite
def vectors(draw, *shape):
    """Keys or values with exact cosines, of single heads and of joined heads."""
    *batch, heads, tokens, width = shape
    side = draw(lattice(*batch, tokens, heads * width))
    return side.unflatten(-1, (heads, width)).movedim(-2, -3).contiguous()


@st.composite
def scores_to_refine(draw, *shape, scope, refinement, summed=False):
    """Scores to refine and to rank, or, if `summed`, to rank by their sum over heads.

    They are Gaussian where statistics decide between heads, and not too close where rounding does.
    """
    if isinstance(refinement, HubSettings) and (summed or scope != "head"):
        return draw(gaussian_tensor(*shape)).abs()
    exact = refinement is None or isinstance(refinement, NmsSettings)
    return draw(importance(*shape, close=exact and not summed))


@st.composite
def marks(draw, *shape):
    """A mask of which about a quarter is true."""
    return torch.rand(shape, generator=draw(generators)) < 0.25


@st.composite
def paddings(draw, *rows, tokens):
    """A mask that is true from some position on in each row, sometimes nowhere."""
    starts = torch.randint(0, tokens + 1, (*rows, 1), generator=draw(generators))
    return torch.arange(tokens) >= starts


def unprotected_scores(scores: Tensor) -> Scored:
    """Return scores without protected tokens."""
    return Scored(scores, torch.zeros_like(scores, dtype=torch.bool))


def shape_of_rows(scores: Tensor, scope: str) -> torch.Size:
    """Return the axes before the heads, without the layers if they share a budget."""
    return scores.shape[1 if scope == "model" else 0 : -2]


def spread(valid: Tensor, shape: torch.Size, scope: str) -> Tensor:
    """Return the mask of real tokens, expanded to the shape of scores."""
    valid = valid[..., None, :]
    return (valid[None] if scope == "model" else valid).expand(shape)


@st.composite
def scored_caches(draw, scope, refinement, summed=False, marked=True, unpadded=True):
    """Keys, values and scores, with or without padding."""
    lead, tokens = draw(leading_shapes(scope)), draw(few)
    shape = (*lead, draw(heads), tokens)
    how = dict(scope=scope, refinement=refinement, summed=summed)
    scores = draw(scores_to_refine(*shape, **how))
    protected = torch.zeros(shape, dtype=torch.bool)
    if marked and draw(st.booleans()):
        protected = draw(marks(*shape))
    valid = draw(strategy_or_none(paddings(*shape_of_rows(scores, scope), tokens=tokens), unpadded))
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
def refinement_inputs(draw, settings):
    """Scores and vectors of a batch of layers, for one kind of refinement."""
    refinement = draw(settings)
    x = draw(scored_caches("head", refinement))
    vectors_of_queries = draw(vectors(*x["keys"].shape))
    keep = draw(st.integers(0, x["keys"].shape[-2]))
    del x["valid"]
    return x | dict(refinement=refinement, keep=keep, queries=vectors_of_queries)


def refine():
    """Inputs with any refinement, at any gate ratio."""
    settings = st.none() | hub_settings | nms_settings | graph_settings(kinds=KINDS)
    ratios = st.none() | st.sampled_from([0.0, 0.25, 0.9, 1.0])
    return st.builds(lambda x, ratio: x | dict(ratio=ratio), refinement_inputs(settings), ratios)


generator = torch.Generator().manual_seed(16)
decided_keys, decided_values = torch.randn(2, 2, 2, 64, 4, generator=generator)
sharpness = torch.tensor([[1.0, 4.0], [0.5, 2.0]])[..., None]
decided_scores = torch.rand(2, 2, 64, generator=generator) ** sharpness
# at half the budget, each of these settings changes the kept set
DECIDED: dict[str, Any] = dict(
    keys=decided_keys,
    values=decided_values,
    scored=Scored(decided_scores, (torch.arange(64) < 8).expand(2, 2, 64)),
)
# scores within a thousandth of 1, many of them equal: bfloat16 cannot tell them apart
crowded_scores = 1 - torch.randint(0, 16, (2, 2, 64), generator=generator) * 2.0**-14
CROWDED: dict[str, Any] = DECIDED | dict(scored=Scored(crowded_scores, DECIDED["scored"].protected))
HUBS = [
    HubSettings(radius=1),
    HubSettings(gamma=0.25),
    HubSettings(tau=0.25),
    HubSettings(minimum=0.5),
    HubSettings(maximum=1.02),
    HubSettings(power=0.5),
    HubSettings(epsilon=0.25),
]
GRAPHS = [
    GraphSettings(2),
    GraphSettings(24, kind="kv"),
    GraphSettings(24, fraction=0.75),
    GraphSettings(24, rounds=3),
    GraphSettings(24, strength=0.5),
    GraphSettings(24, rule="sequential"),
    GraphSettings(24, rule="sum"),
    GraphSettings(24, signal="enhance"),
    GraphSettings(24, signal="evict"),
    GraphSettings(24, per_head=True),
    GraphSettings(24, spare_sources=True),
    GraphSettings(24, clamp=True),
    GraphSettings(24, exclude_window=True),
]


CORNERS = dict(refine=[DECIDED | dict(keep=32, ratio=0.5, refinement=hubs) for hubs in HUBS])


def settings_id(settings: HubSettings | GraphSettings) -> str:
    """Return the settings that differ from their defaults, as text."""
    said = settings._asdict().items()
    return "-".join(f"{k}-{v}" for k, v in said if v != type(settings)._field_defaults.get(k))


generator = torch.Generator().manual_seed(11)
keys, values = torch.randn(2, 2, 3, 2, 8, 4, generator=generator)
scores = torch.rand(2, 3, 2, 8, generator=generator)
scored = Scored(scores, torch.arange(8).expand(scores.shape) < 1)
graph = GraphSettings(count=2, kind="qk")

bad_scores = [
    Refusal("scored", lambda s: s._replace(scores=NEGATIVE(s.scores)), ValueError, ">= 0"),
    Refusal("scored", lambda s: s._replace(scores=NAN(s.scores)), ValueError, "finite"),
    Refusal("scored", lambda s: s._replace(scores=longer(s.scores)), ValueError, "shape"),
    Refusal("scored", lambda s: s._replace(scores=s.scores.long()), TypeError, "floating-point"),
    Refusal("scored", lambda s: s._replace(protected=longer(s.protected)), ValueError, "shape"),
    Refusal("scored", lambda s: s._replace(protected=s.scores), TypeError, "boolean"),
]
bad_others = [
    Refusal("refinement", HubSettings(gamma=1.0), ValueError, "gamma must be in (0, 1)"),
    Refusal("refinement", HubSettings(maximum=0.5), ValueError, "maximum must be >= minimum"),
    Refusal("refinement", NmsSettings(factor=2.0), ValueError, "factor must be in [0, 1]"),
]
bad_graph = [
    Refusal("keys", NAN, ValueError, "keys must be finite"),
    Refusal("queries", NAN, ValueError, "queries must be finite"),
    Refusal("queries", None, ValueError, "must be given where refinement.kind is 'qk'"),
    Refusal("queries", lambda q: q[..., :1, :, :], ValueError, "multiple of the 2 of keys"),
    Refusal("queries", longer, ValueError, "shape"),
]

REFUSALS = dict(
    refine=(
        dict(
            scored=scored, refinement=graph, keep=3, ratio=None, keys=keys, values=values,
            queries=keys,
        ),
        [
            *bad_scores,
            *bad_others,
            *bad_graph,
            Refusal("values", longer, ValueError, "shape"),
            Refusal("keys", None, ValueError, "must be given"),
            Refusal("keys", lambda k: k[..., 1:, :], ValueError, "shape"),
        ],
    )
)  # fmt: skip
