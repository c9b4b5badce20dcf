"""A model whose heads are dealt out to ranks keeps what one process keeps, and says the same."""

from copy import copy
from functools import cache

import pytest
import torch
from torch.distributed import get_rank
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import parallel

import optimized
from optimized import models
from spec_tests.accuracy import assert_near
from spec_tests.internal.models import random_model as small
from spec_tests.internal.project.ranks import started_ranks

IDS, MASK = small.prompts(4)
PROMPT = IDS[:, :24], MASK[:, :24]
SHAPE = dict(num_attention_heads=12, num_key_value_heads=6, hidden_size=48, head_dim=8)
PLAN = dict.fromkeys(("self_attn.[qkv]_proj", "mlp.[gu]*_proj"), parallel.ColwiseParallel())
PLAN |= dict.fromkeys(("self_attn.o_proj", "mlp.down_proj"), parallel.RowwiseParallel())
HALF, FEW, AGAIN = dict(ratio=0.5), dict(keep=9), dict(interval=3)
CODES = dict(settings={"group": 8, "residual": 8})
GATES = dict(settings={"weights": small.gates(optimized)})
REFINED = [f"snapkv{x}@{y}" for x in ("", "+hubkv", "+nms") for y in ("head", "layer", "model")]
OTHERS = ["knorm+hubkv@model", "h2o+hubkv", "streaming_llm", "pyramidkv", "kvzip", "kvzip+hubkv"]
SERVED: list[tuple] = [(system, HALF) for system in (*REFINED, *OTHERS)]
SERVED += [("full", {}), ("kivi-4", CODES), ("snapkv+hubkv>kivi-4", HALF | CODES)]
SERVED += [("fastkvzip+hubkv", HALF | GATES)]
SERVED += [("expected_attention@layer", HALF | dict(chunk=7)), ("h2o", FEW | AGAIN)]
SERVED += [("snapkv+hubkv@layer", dict(keep=x)) for x in (9, [12, 20])]
SERVED += [("h2o", dict(keep=[[4, 8, 12, 16, 20, 24], [24, 20, 16, 12, 8, 4]]))]
SERVED += [("snapkv+hubkv@model", HALF | dict(protected=slice(0, 2), exact_layers=[0]))]


@pytest.fixture(scope="module")
def ranks():
    """The running processes of all ranks."""
    with started_ranks(small.__name__) as started:
        yield started


@cache
def model_of(group=None, part="", wide=True):
    """Return a model in double precision; its projections, or those of a part, are dealt out."""
    model = small.new_model("llama", **SHAPE if wide else {}).double()
    if group is not None:
        plan: dict = {f"model.layers.*.{n}": x for n, x in PLAN.items() if part in n}
        parallel.parallelize_module(model, DeviceMesh.from_group(group, "cpu"), plan)
    return model


def answer(system, options, group=None, part=""):
    """Return the kept sets, a generated continuation, and the logits of the last tokens."""
    model = model_of(group, part, "fastkvzip" not in system)
    cached = models.compressed(model, system, *PROMPT, **options)
    said = small.generate(model, IDS, MASK, copy(cached))
    new = 28 - cached.get_seq_length()
    return cached.kept(), said, small.logits_after(model, cached, IDS, MASK, new)


@pytest.mark.parametrize(("system", "options"), SERVED, ids=str)
def test_ranks_keep_and_say_what_one_process_does(ranks, system, options):
    call, alone = dict(system=system, options=options), answer(system, options)
    for size in (2,) if "fastkvzip" in system else (2, 3):
        found = [found for (found,) in ranks.call([[(answer, call)]] * size)]
        for layer, kept in enumerate(alone[0]):
            assert torch.equal(torch.cat([masks[layer] for masks, *_ in found], 1), kept)
        for _, said, logits in found:
            assert torch.equal(said, alone[1])
            assert_near(logits, alone[2])


def test_attention_may_be_whole_on_each_rank(ranks):
    for (found,) in ranks.call([[(answer, dict(system="cake", options=HALF, part="mlp"))]] * 2):
        assert all(map(torch.equal, found[0], answer("cake", HALF)[0]))


def attach_other(group):
    """Attach a model that says on one rank that it has more key heads."""
    model = model_of.__wrapped__(group)
    model.config.num_key_value_heads += get_rank()
    return models.attach(model)


def read_alone(group):
    """Read a prompt without `compressed`."""
    return models.prefill(models.attach(model_of(group)), *PROMPT)


MIXING = ["snapkv+graphkv", "cake", "random", "snapkv>hex-4", "snapkv>kcvt-4", "snapkv>gear"]
REFUSED = [(x, HALF, f"suit ranks that share heads, got '{x}': ") for x in MIXING]
REFUSED += [(x, {}, f"{x} quantises values of all heads") for x in ("hex-3", "kcvt-3", "gear")]
ALONE = ("h2o@layer", "h2o+hubkv", "fastkvzip@head")
REFUSED += [(x, FEW | AGAIN | GATES, f"{x}': with an interval") for x in ALONE]
REFUSED += [("snapkv", dict(ratio=2), "ratio must be at least 0 and below 1, got 2")]
UNLIKE = [(answer, dict(system="snapkv", options=dict(ratio=ratio))) for ratio in (0.5, 0.75)]
CALLS = {says: [(answer, dict(system=x, options=how))] * 2 for x, how, says in REFUSED} | {
    "ratio must be alike on every rank, got '0.5' on rank 0 and '0.75'": UNLIKE,
    "past_key_values must be from `compressed`": [(read_alone, {})] * 2,
    "must deal 7 key heads out to 2 ranks equally, got 3": [(attach_other, {})] * 2,
}


@pytest.mark.parametrize("says", CALLS)
def test_what_one_rank_refuses_all_refuse(ranks, says):
    for (error,) in ranks.call([[call] for call in CALLS[says]]):
        assert isinstance(error, ValueError)
        assert says in str(error)
