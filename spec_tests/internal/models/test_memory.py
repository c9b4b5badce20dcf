"""Memory that selecting entries of a long prompt needs."""

import re
from contextlib import ExitStack
from functools import partial, wraps
from unittest.mock import patch

import pytest
import torch

import optimized
from optimized.bench import model_memory
from optimized.bench.model_memory import most_alive
from optimized.models.systems import selection_call, system_named


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("per_head", [False, True], ids=["layer", "head"])
@pytest.mark.parametrize("tokens", [4096, 16384])
def test_a_graph_of_few_heads_needs_at_most_twice_the_entries(tokens, per_head, dtype):
    drawn = torch.Generator().manual_seed(0)
    keys = torch.randn(1, 2, tokens, 64, generator=drawn).to(dtype)
    scores = torch.rand(1, 2, tokens, generator=drawn)
    graph = dict(keep=tokens // 16, count=16, per_head=per_head)
    _, peak = most_alive(partial(optimized.graphkv_refine, scores, keys, **graph))
    assert peak <= 2 * (2 * keys.nbytes)


SYSTEMS = {
    "snapkv+hubkv@head": ("snapkv", "hubkv_select", "evict"),
    "snapkv+graphkv": ("snapkv", "graphkv_select", "evict"),
    "kvzip+hubkv": ("kvzip_chunk", "hubkv_select", "evict"),
    "hex-4": ("h2o_mass", "compress"),
    "gear": ("gear_prefill",),
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_peak_of_each_function_is_printed_beside_that_of_the_model(system):
    tokens = 128
    entries = 2 * model_memory.KV_HEADS * tokens * model_memory.WIDTH

    def greedy(function, layers):
        @wraps(function)
        def call(*args, **given):
            torch.empty(layers, entries)
            return function(*args, **given)

        return call

    with ExitStack() as changed:
        changed.enter_context(patch.multiple(model_memory, SYSTEMS=(system,), STEPS=2))
        for layers, name in enumerate(SYSTEMS[system], 100):
            function = greedy(getattr(optimized, name), layers)
            changed.enter_context(patch.object(optimized, name, function))
        _, line = model_memory.measured(tokens)
    shares = dict(re.findall(r"(\w+) (\d+)\.\d\d", line.partition("; ")[2]))
    found = {name: int(shares.get(name, 0)) for name in SYSTEMS[system]}
    assert found == {name: layers for layers, name in enumerate(SYSTEMS[system], 100)}
