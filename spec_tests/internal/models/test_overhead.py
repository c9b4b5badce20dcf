"""Overhead of an import and of a decode step, and memory that selecting entries needs."""

import subprocess
import sys
from functools import partial

import pytest
import torch

import optimized
from optimized.bench.model_memory import most_alive
from optimized.models.systems import selection_call, system_named


def test_an_import_loads_no_model_code():
    code = "import sys, optimized.models; print(*sys.modules)"
    run = [sys.executable, "-c", code]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    for name in ("transformers.modeling_utils", "transformers.generation.utils"):
        assert name not in loaded
    assert not {"transformers.masking_utils", "torch._dynamo"} & {*loaded}


@pytest.mark.parametrize("scope", ["head", "layer"])
@pytest.mark.parametrize("reading", ["letter", "remedied"])
def test_a_graph_needs_less_than_twice_the_entries_that_it_chooses_from(reading, scope):
    drawn = torch.Generator().manual_seed(0)
    keys, values = torch.randn(2, 1, 4, 8192, 64, generator=drawn)
    scores = torch.rand(1, 4, 8192, generator=drawn)
    scored = optimized.Scored(scores, torch.zeros_like(scores, dtype=torch.bool))
    name, settings = selection_call(system_named(f"snapkv+graphkv@{scope}"), reading)
    select = partial(getattr(optimized, name), keys, values, scored, **settings, ratio=0.75)
    kept, peak = most_alive(select)
    assert int(kept.sum()) == kept.numel() // 4
    assert peak < 2 * (keys.nbytes + values.nbytes)
