"""GraphKV's kernel: inputs of several tiles, and how it multiplies."""

import os
import sys
from importlib import import_module
from subprocess import check_output
from typing import Any
from unittest.mock import patch

import pytest
import torch

import reference
from optimized import kernels
from spec_tests.accuracy import assert_as_accurate
from spec_tests.kernels.interpreter import small_blocks


def layer(tokens, **settings) -> dict[str, Any]:
    """Return a layer of two heads whose key entries are 1 or −1, so that edges take few values."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(2, tokens, generator=generator)
    keys = 2.0 * torch.randint(2, (2, tokens, 4), generator=generator) - 1
    usual = dict(keep=10, count=2, fraction=0.3, rounds=2, adaptive=False)
    return dict(scores=scores, keys=keys) | usual | settings


@pytest.mark.parametrize("tokens", [1, 16, 150])
def test_tied_edges_reach_the_first_tokens_of_any_tile(tokens):
    x = layer(tokens)
    with small_blocks(128 if tokens > 64 else 8):
        found = kernels.graphkv_refine(**x)
    assert_as_accurate(found, reference.graphkv_refine, x)


@pytest.mark.parametrize(("count", "rule"), [(1, "sum"), (12, "product"), (60, "sequential")])
def test_long_lists_are_looked_through_in_turns(count, rule):
    """There are more sub-tiles, edges and neighbours than a program handles at once."""
    x = layer(100, keep=100, count=count, rule=rule)
    home = import_module("optimized.kernels.graphkv.refine")
    with (
        small_blocks(16),
        patch.object(home, "LISTED", 32),
        patch.object(home, "chunk", lambda _: 16),
    ):
        found = kernels.graphkv_refine(**x)
    assert_as_accurate(found, reference.graphkv_refine, x)


INSTRUCTIONS = """
import re
from optimized.bench.machine_code import compiled, source
from optimized.bench.operations import graph

MULTIPLIES = r"(?:wgmma|tcgen05)[.]mma[\\w.:]*|mma[.]sync[\\w.:]*"
for launch in graph(8192).launches:
    if launch.kernel.fn.__name__ in ("maxima_kernel", "neighbours_kernel"):
        code = compiled(source(launch), 90).asm
        layouts = re.findall(r"instrShape = [[][\\d, ]*[]]", code["ttgir"])
        print(*sorted({*re.findall(MULTIPLIES, code["ptx"]), *layouts}))
"""
"""A program that compiles both kernels, which Triton's interpreter cannot."""


def test_an_edge_is_computed_twice_by_the_same_instruction():
    compiler = {name: x for name, x in os.environ.items() if name != "TRITON_INTERPRET"}
    first, again = check_output([sys.executable, "-c", INSTRUCTIONS], env=compiler).splitlines()
    assert b"mma" in first
    assert first == again
