"""Overhead of an import and of a decode step, and memory that selecting entries needs."""

import subprocess
import sys
from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode

import optimized
from optimized.bench.model_memory import most_alive
from optimized.models.systems import selection_call, system_named
from spec_tests.internal.models.random_model import attached_model, models, prompts

WAITING = {"item", "tolist", "__bool__", "__int__", "__float__", "nonzero"}


class Waits(TorchFunctionMode):
    """A counter of the operations that wait for a device."""

    count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += getattr(func, "__name__", "") in WAITING
        return func(*args, **(kwargs or {}))


def test_an_import_loads_no_model_code():
    code = "import sys, optimized.models; print(*sys.modules)"
    run = [sys.executable, "-c", code]
    loaded = subprocess.run(run, capture_output=True, text=True, check=True).stdout.split()
    for name in ("transformers.modeling_utils", "transformers.generation.utils"):
        assert name not in loaded
    assert not {"transformers.masking_utils", "torch._dynamo"} & {*loaded}


@pytest.mark.parametrize("system", ["full", "snapkv"])
@torch.no_grad()
def test_a_step_waits_for_a_mask_and_positions_alone(system):
    model, ids = attached_model("llama"), prompts(1)[0]
    how = dict(ratio=0.5) if system == "snapkv" else {}
    cache = models.compressed(model, system, ids[:, :-1], **how)
    positions = torch.full((len(ids), 1), ids.shape[1] - 1)
    given = dict(attention_mask=torch.ones_like(ids), position_ids=positions)
    with Waits() as waits:
        model(ids[:, -1:], past_key_values=cache, use_cache=True, **given)
    assert waits.count == 2


@torch.no_grad()
def test_what_is_no_number_is_refused_where_heads_differ():
    model, ids = attached_model("llama"), prompts(1)[0]
    cache = models.compressed(model, "knorm+hubkv@layer", ids, ratio=0.5, settings={"shift": True})
    assert any(layer.old is not None for layer in cache.layers)
    hidden = torch.full((len(ids), 1, model.config.hidden_size), torch.nan)
    with pytest.raises(ValueError, match=r"queries must be finite, got nan"):
        model(inputs_embeds=hidden, past_key_values=cache, use_cache=True)


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
