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


@pytest.mark.parametrize(("count", "rule"), [(1, "sum"), (12, "product"), (60, "sequential")])
def test_long_lists_are_looked_through_in_turns(count, rule):
    """There are more sub-tiles, edges and neighbours than a program handles at once.

    Key entries are 1 or −1, so that edges take few values.
    """
    generator = torch.Generator().manual_seed(0)
    keys = 2.0 * torch.randint(2, (2, 100, 4), generator=generator) - 1
    settings = dict(keep=100, count=count, rounds=2, rule=rule, adaptive=False)
    x: dict[str, Any] = dict(scores=torch.rand(2, 100, generator=generator), keys=keys) | settings
    home = import_module("optimized.kernels.graphkv.refine")
    with patch.multiple(home, BLOCK=16, LISTED=32, chunk=lambda _: 16):
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
