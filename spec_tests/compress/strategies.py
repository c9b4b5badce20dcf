"""Strategies for whole compressors: caches, scores, budgets, stores."""

from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from reference import GraphSettings, HexConfig, HubSettings, Scored
from spec_tests.from_signature import draw_choices
from spec_tests.refinement import strategies as refining
from spec_tests.refinement.strategies import CROWDED, keys, refinements, scored, scores
from spec_tests.retain.strategies import AXES, FORMS, budgets, flatten_pools
from spec_tests.strategies import Refusal, longer


def count_protected_and_real_entries(x: dict[str, Any], scope: str) -> tuple[Tensor, Tensor, int]:
    """Return the number of protected entries, of real entries and of all entries of each pool."""
    scores, protected = x["scored"]
    there = torch.ones_like(protected)
    if x["valid"] is not None:
        there = refining.spread(x["valid"], scores.shape, scope)
    pools, shields = flatten_pools(there, scope), flatten_pools(protected, scope)
    return shields.sum(-1), pools.sum(-1), pools.shape[-1]


scopes = st.sampled_from([*AXES])


@st.composite
def hex_configs(draw, padded=False):
    """Settings with small blocks, and with every treatment of the recent window."""
    return HexConfig(
        bits=draw(st.integers(2, 4)),
        density=draw(st.sampled_from([0.0, 0.0, 1.0])),
        heavy=draw(st.sampled_from([0.0, 0.25, 0.5])),
        recent=draw(st.integers(0, 2)),
        block=draw(st.sampled_from([1, 2, 4])),
        **draw(draw_choices(HexConfig, "scales", "near", "tile"))
        | (dict(mode="append") if padded else {}),
    )


@st.composite
def compress(draw, scopes=scopes, unpadded=True, forms=FORMS):
    """Inputs with any refinement in any scope; the rest is evicted."""
    scope = draw(scopes)
    refinement = draw(refinements | refining.graph_settings(kinds=("qk", "qq")))
    x = draw(refining.scored_caches(scope, refinement, unpadded=unpadded))
    compared = isinstance(refinement, GraphSettings) and "q" in refinement.kind
    queries = draw(refining.vectors(*x["keys"].shape)) if compared else None
    budget = draw(budgets(*count_protected_and_real_entries(x, scope), forms))
    return x | budget | dict(scope=scope, refinement=refinement, queries=queries, store=None)


@st.composite
def compress_into_hex(draw, scopes=scopes, refinements=refinements, extended=False):
    """Inputs with any refinement in any scope; the rest is quantised."""
    scope, refinement = draw(scopes), draw(refinements)
    x = draw(refining.scored_caches(scope, refinement, summed=True))
    config = draw(hex_configs(padded=x["valid"] is not None))
    if extended:
        config = config._replace(value_bits=draw(st.integers(1, 4)))
    tokens = x["keys"].shape[-2]
    layers = len(x["keys"]) if scope == "model" else 1
    carried = config.recent if config.carry_recent else 0
    pool = layers * (max(0, tokens - carried) // config.block * config.block)
    none = torch.zeros(refining.shape_of_rows(x["scored"].scores, scope), dtype=torch.int64)
    budget = draw(st.just(dict(keep=None, ratio=None)) | budgets(none, none, pool))
    return x | budget | dict(scope=scope, refinement=refinement, queries=None, store=config)


def without_store_argument(x: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of `select`: those of `compress` without `store`."""
    return {name: value for name, value in x.items() if name != "store"}


INPUTS = dict(
    select=compress().map(without_store_argument), compress=compress() | compress_into_hex()
)

EXTENDED = dict(compress=compress_into_hex(extended=True))

ONES = torch.ones(1, 2, 3, 2)
SPAN = dict(
    keys=ONES,
    values=ONES,
    scored=refining.unprotected_scores(torch.arange(6.0).view(1, 2, 3) / 8),
    scope="head",
)
# a span shorter than a block; a graph of queries
CORNERS = dict(
    select=[
        refining.DECIDED | dict(ratio=0.5, scope=scope, refinement=settings)
        for scope, kinds in (("layer", refining.HUBS), ("head", refining.GRAPHS))
        for settings in kinds
    ]
    + [CROWDED | dict(ratio=0.5, refinement=HubSettings())],
    compress=[
        CROWDED | dict(ratio=0.5, refinement=HubSettings()),
        SPAN | dict(store=HexConfig(block=4, recent=0)),
        SPAN | dict(keep=2, refinement=GraphSettings(1, "qk"), queries=ONES),
    ],
)


def with_hole(mask: Tensor) -> Tensor:
    """Return the mask with a false after the first real token."""
    return mask.clone().index_fill_(-1, torch.tensor([6]), False)


valid = torch.arange(8) >= torch.tensor([0, 2, 4])[:, None]
padded = Scored(scores, scored.protected & valid[:, None])
whole = dict(
    keys=keys, values=refining.values, scored=padded, keep=6, ratio=None, scope="model", valid=valid
)
chosen = whole | dict(refinement=refining.graph, queries=keys)

bad_rows = [
    *refining.bad_scores,
    Refusal("values", longer, ValueError, "shape"),
    Refusal("valid", with_hole, ValueError, "false on the left of a row only"),
    Refusal("keep", None, ValueError, "exactly one"),
    Refusal("keep", -1, ValueError, "in [0, "),
    Refusal("keep", 2.0, TypeError, "integer"),
    Refusal("keep", 33, ValueError, "in [0, "),
    Refusal("ratio", 0.5, ValueError, "exactly one"),
]
bad_choice = [
    *bad_rows,
    *refining.bad_others,
    *refining.bad_graph,
    Refusal("keep", torch.tensor([3, 4, 4]), ValueError, "the 4 protected"),
]
config = HexConfig(block=4, density=0.0)
bad_store = [
    Refusal("store", config._replace(bits=9), ValueError, "bits must be in [1, 8]"),
    Refusal("store", config._replace(mode="full"), ValueError, "mode 'append'"),
]

REFUSALS = dict(
    select=(chosen, bad_choice),
    compress=(chosen | dict(store=None), [*bad_choice, *bad_store]),
)
