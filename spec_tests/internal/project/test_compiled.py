"""`torch.compile` makes one graph of a call: neither the argument checks nor the body break it."""

import warnings
from collections.abc import Callable
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import pytest
import torch

import optimized
from optimized import kernel_of
from spec_tests.accuracy import assert_equal
from spec_tests.inputs import GOOD

NO_GRAPH = {
    "draws from a generator": (
        "connecting_swaps double_edge_swaps expander_mask gear_append gear_compress gear_prefill "
        "half_edge_pairing hex_append hex_attention hex_decode hex_prefill hex_read "
        "hex_recompress low_rank random_expander random_order sensitivity subtile_codes "
        "subtile_expander train_fastkvzip"
    ),
    "is as long, or takes as many steps, as the data say": (
        "compress decoding_append decoding_start evict graphkv_compress graphkv_refine "
        "graphkv_select hubkv_compress hubkv_select is_ramanujan kvzip ragged_attention "
        "ramanujan_lift retain second_singular_value select spectral_gap"
    ),
    "computes with NumPy or SciPy": (
        "cheeger_constant component_count conductance is_connected lps_graph lps_mask"
    ),
    "asks for storages": "stored_bytes",
}
UNTRACED = {name for names in NO_GRAPH.values() for name in names.split()}


def trace(function: Callable[..., Any], good: dict[str, Any]) -> None:
    """Compile a function into one graph, and check its result against the function's."""
    torch.compiler.reset()
    compiled = torch.compile(function, fullgraph=True, backend="eager", dynamic=False)
    # without the patch PyTorch flushes the processor's caches to log the time of the guards
    untimed = patch("torch._dynamo.guards.profile_guard_manager", lambda *_: 0.0, create=True)
    with untimed, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns of caches that it ignores
        traced = compiled(**deepcopy(good))
    assert_equal(traced, function(**deepcopy(good)))


@pytest.mark.parametrize("name", [name for name in GOOD if name not in UNTRACED])
def test_a_call_compiles_into_one_graph(name):
    trace(getattr(optimized, name), GOOD[name])


def test_asking_for_a_kernel_breaks_no_graph():
    def called(scores: torch.Tensor) -> torch.Tensor:
        return scores if kernel_of("smd") is None else 2 * scores

    trace(called, dict(scores=torch.ones(3)))
