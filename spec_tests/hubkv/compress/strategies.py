"""Strategies for HubKV as a whole."""

import torch
from hypothesis import strategies as st

from reference import HexConfig, HubSettings
from spec_tests.compress import strategies as compressing
from spec_tests.compress.strategies import whole
from spec_tests.refinement.strategies import CROWDED, DECIDED, HUBS, hub_settings, scored_caches
from spec_tests.strategies import Refusal


@st.composite
def hubkv_compress(draw):
    """Inputs whose budget holds sinks and window, so that the window is not clipped."""
    scope, refinement = draw(compressing.scopes), draw(hub_settings)
    x = draw(scored_caches(scope, refinement))
    sinks, recent = draw(st.integers(0, 2)), draw(st.none() | st.integers(0, 2))
    needed, sizes, pool = compressing.count_protected_and_real_entries(x, scope)
    heads = pool // max(1, x["keys"].shape[-2])
    needed = torch.minimum(needed + heads * (sinks + (recent or 0)), sizes)
    budget = draw(compressing.budgets(needed, sizes, pool))
    ends = dict(sinks=sinks, recent=recent)
    return x | budget | ends | dict(scope=scope, refinement=refinement, store=None)


@st.composite
def hubkv_compress_into_hex(draw):
    """Inputs for HEX, which keeps sinks and window outside the budget."""
    x = draw(compressing.compress_into_hex(refinements=hub_settings))
    del x["queries"]
    return x | dict(sinks=draw(st.integers(0, 2)), recent=draw(st.none() | st.integers(0, 2)))


INPUTS = dict(
    hubkv_select=hubkv_compress().map(compressing.without_store_argument),
    hubkv_compress=hubkv_compress() | hubkv_compress_into_hex(),
)

# a near expander
near = HexConfig(block=1, recent=0, density=0.4, near=True)
CORNERS = dict(
    hubkv_select=[
        DECIDED | dict(ratio=0.5, sinks=1, recent=1, refinement=settings)
        for settings in (HubSettings(), *HUBS)
    ]
    + [CROWDED | dict(ratio=0.5, sinks=1, recent=1, scope="head", refinement=HubSettings())],
    hubkv_compress=[
        compressing.SPAN | dict(store=near, refinement=settings)
        for settings in (HubSettings(), HubSettings(radius=1))
    ],
)
CORNERS["hubkv_compress"] += CORNERS["hubkv_select"]

hubbed = whole | dict(refinement=HubSettings(), sinks=1, recent=0)
bad_hubs = [
    *compressing.bad_rows,
    Refusal("refinement", HubSettings(maximum=0.5), ValueError, "maximum must be >= minimum"),
]

REFUSALS = dict(
    hubkv_select=(hubbed, bad_hubs),
    hubkv_compress=(hubbed | dict(store=None), [*bad_hubs, *compressing.bad_store]),
)
