"""GraphKV's kernel: calls that fall back to PyTorch, and inputs of several tiles."""

import json
import os
import subprocess
import sys
from importlib import import_module
from typing import Any
from unittest.mock import patch

import pytest
import torch

import reference
from optimized import kernels
from spec_tests.accuracy import assert_as_accurate
from spec_tests.kernels.interpreter import small_blocks

KNOBS: dict[str, Any] = dict(
    protected=None,
    queries=None,
    values=None,
    kind="kk",
    fraction=0.3,
    rounds=2,
    strength=0.5,
    rule="product",
    signal="decay",
    per_head=False,
    spare_sources=False,
    clamp=False,
    exclude_window=False,
    adaptive=False,
)


def layer(tokens=9, width=4, dtype=torch.float32, scored=None) -> dict[str, Any]:
    """Return a layer of two heads whose key entries are 1 or −1, so that edges take few values."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(2, tokens, generator=generator).to(scored or dtype)
    keys = 2.0 * torch.randint(2, (2, tokens, width), generator=generator) - 1
    return dict(scores=scores, keys=keys.to(dtype), keep=10, count=2) | KNOBS


@pytest.mark.parametrize("tokens", [1, 16, 33, 150])
def test_tied_edges_reach_the_first_tokens_of_any_tile(tokens):
    x = layer(tokens)
    with small_blocks(128 if tokens > 64 else 8):
        found = kernels.graphkv_refine(**x)
    assert_as_accurate(found, reference.graphkv_refine, x)


@pytest.mark.parametrize(("count", "rule"), [(1, "sum"), (12, "product"), (60, "sequential")])
def test_long_lists_are_looked_through_in_turns(count, rule):
    """There are more sub-tiles, edges and neighbours than a program handles at once."""
    x: dict[str, Any] = layer(100) | dict(keep=100, count=count, rule=rule)
    home = import_module("optimized.kernels.graphkv.refine")
    with (
        small_blocks(16),
        patch.object(home, "LISTED", 32),
        patch.object(home, "chunk", lambda _: 16),
    ):
        found = kernels.graphkv_refine(**x)
    assert_as_accurate(found, reference.graphkv_refine, x)


INSTRUCTIONS = """
import json, re
from optimized.bench.machine_code import compiled, source
from optimized.bench.operations import graph

MULTIPLIES = r"(?:wgmma|tcgen05)[.]mma[\\w.:]*|mma[.]sync[\\w.:]*"
LAYOUTS = r"instrShape = [[][\\d, ]*[]]|tensor_memory_encoding<[^>]*>"
found = {}
for launch in graph(8192).launches:
    if launch.kernel.fn.__name__ in ("maxima_kernel", "neighbours_kernel"):
        for target in (90, 100):
            code = compiled(source(launch), target).asm
            words = re.findall(MULTIPLIES, code["ptx"]) + re.findall(LAYOUTS, code["ttgir"])
            found.setdefault(target, []).append(sorted({*words}))
print(json.dumps(found))
"""
"""A program that compiles both kernels, which Triton's interpreter cannot."""


def test_an_edge_is_computed_twice_by_the_same_instruction():
    here = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-c", INSTRUCTIONS]
    done = subprocess.run(command, env=here, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert len(found) == 2
    for first, again in found.values():
        assert any("mma" in word for word in first)
        assert first == again
