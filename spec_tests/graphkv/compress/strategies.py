"""Strategies for GraphKV as a whole."""

import torch
from hypothesis import strategies as st

from reference import GraphSettings
from spec_tests.compress.strategies import bad_rows, bad_store, valid
from spec_tests.refinement import strategies as refining
from spec_tests.refinement.strategies import graph, keys
from spec_tests.strategies import Refusal, generators


@st.composite
def graphkv_compress(draw):
    """Inputs with one budget, one a layer, or one for each row of each layer."""
    refinement = draw(refining.graph_settings())
    x = draw(refining.scored_caches("head", refinement, marked=False))
    tokens, lead = x["keys"].shape[-2], x["keys"].shape[:-3]
    forms = [st.fixed_dictionaries(dict(keep=st.integers(0, tokens), ratio=st.none()))]
    forms += [st.fixed_dictionaries(dict(keep=st.none(), ratio=st.sampled_from([0.0, 0.5, 0.9])))]
    if lead:
        shape = draw(st.sampled_from([lead[:1], lead]))
        keep = torch.randint(0, tokens + 1, shape, generator=draw(generators))
        forms += [st.just(dict(keep=keep, ratio=None))]
    length = draw(st.sampled_from([1000, 2000, 3500, 2999, 999, 0, None]))
    return x | draw(st.one_of(forms)) | dict(refinement=refinement, length=length)


INPUTS = dict(graphkv_select=graphkv_compress())
CORNERS = dict(
    graphkv_select=[
        refining.DECIDED | dict(ratio=0.5, length=40_000, refinement=settings)
        for settings in (GraphSettings(24), *refining.GRAPHS)
    ]
)
CORNERS["graphkv_compress"] = CORNERS["graphkv_select"]

layered = dict(
    keys=keys, values=refining.values, scored=refining.scored, refinement=graph, keep=3, ratio=None,
    length=8, queries=keys, valid=valid.expand(2, 3, 8),
)  # fmt: skip
bad_layers = [
    *bad_rows,
    *refining.bad_graph,
    Refusal("keep", 9, ValueError, "[0, 8]"),
    Refusal("keep", torch.tensor([3]), ValueError, "shape"),
    Refusal("keep", torch.full((2, 2), 3), ValueError, "keep must have shape (2, 3)"),
    Refusal("keep", torch.full((2, 3), 9), ValueError, "[0, 8]"),
]

REFUSALS = dict(
    graphkv_select=(layered, bad_layers),
    graphkv_compress=(layered | dict(store=None), [*bad_layers, *bad_store]),
)
