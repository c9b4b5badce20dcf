"""Rows at shapes of their own: what papers time.

HubKV-Tab5 times refinement and selection at [36, B, 8, N]. HubKV-Tab6 times FastKVzip with HubKV
and alone: a prompt, its compression, and the first step. GraphKV-Tab3 times decoding at a budget of
512 after SnapKV, PyramidKV and KNorm, with the graph and without it. Both papers use models of
eight billion parameters on a GPU; here it is a model of two layers. HEX reports less than 150 ms
for an expander of 1024 channels, and less than 3 s for 4096. Its rival is the configuration model
of networkx: a multigraph whose repeated edges a mask loses, without a check of its spectrum.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

import optimized as kv
from optimized.bench.straightforward.rows import Inputs, importance, last_queries
from optimized.bench.straightforward.scorers import gate
from optimized.bench.straightforward.selection import corrected_content


class Case(NamedTuple):
    """Two functions of the same inputs."""

    name: str
    shape: str
    inputs: Callable[[], Inputs]
    ours: Callable[..., object]
    theirs: Callable[..., object]
    against: str
    paper: str = ""  # milliseconds that a paper reports for our side, on its own hardware

    def sides(self) -> tuple[Callable[[], object], Callable[[], object]]:
        """Return a call of each."""
        inputs = self.inputs()
        return partial(self.ours, **inputs), partial(self.theirs, **inputs)


def mass(queries: Tensor, keys: Tensor, **_: Any) -> Tensor:
    """Return the attention mass of a prompt."""
    return kv.h2o_mass(queries, keys)


def forward(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Return the attention of a prompt."""
    return F.scaled_dot_product_attention(queries, keys, values, is_causal=True, enable_gqa=True)


RATIO, KEEP, NEW = 0.95, 512, 32
TABLE5 = {
    4096: ("2.51", "10.19"),
    8192: ("4.76", "17.40"),
    16384: ("10.18", "20.96"),
    32768: ("17.90", "26.73"),
}
"""The paper's milliseconds of refinement and selection over FastKVzip, by tokens, for batches of 1
and 4."""


def table5(tokens: int, batch: int) -> Inputs:
    """Return scores and protected tokens of the paper's microbenchmark, few scores large."""
    scores = importance(0, 36, batch, 8, tokens).pow(4).to(torch.bfloat16)
    return dict(scores=scores, protected=kv.protected_mask(tokens).expand(scores.shape))


def refine_and_retain(scores: Tensor, protected: Tensor) -> Tensor:
    """Return the mask of the best entries of the whole model after refinement."""
    refined = kv.hubkv_refine(scores, RATIO, protected)
    return kv.retain(refined, protected, ratio=RATIO, scope="model")


def refine_and_sort(scores: Tensor, protected: Tensor) -> Tensor:
    """Return the same by steps over the whole tensor in float32, and one stable sort."""
    inside = (~protected[0, 0, 0]).nonzero()
    content = scores.float()[..., int(inside[0]) : int(inside[-1]) + 1]
    refined = torch.ones_like(scores)
    mixed = torch.lerp(content, corrected_content(content), RATIO**2)
    refined[..., int(inside[0]) : int(inside[-1]) + 1] = mixed
    rows = refined.movedim(0, 1).flatten(1)
    order = rows.sort(descending=True, stable=True).indices
    best = order[..., : kv.kept_count(rows.shape[-1], RATIO)]
    return torch.zeros_like(rows, dtype=torch.bool).scatter_(-1, best, True)


def configuration_model(tokens: int, channels: int, token_degree: int) -> Any:
    """Return the multigraph of networkx's configuration model."""
    degrees = [token_degree] * tokens, [tokens * token_degree // channels] * channels
    return import_module("networkx").bipartite.configuration_model(*degrees, seed=0)


def answer(system: str, tokens: int, count: int, **settings: Any) -> None:
    """Compress a random prompt in a model of two layers, and decode some tokens."""
    from optimized import models
    from optimized.bench.model_memory import CONFIG, KV_HEADS, model, random_prompt

    ids = random_prompt(tokens)
    if system.startswith("fastkvzip"):
        settings |= dict(settings=dict(weights=[gate(KV_HEADS)] * CONFIG.num_hidden_layers))
    attached = model(ours=True)
    cache = models.compressed(attached, system, ids, **settings)
    steps: dict[str, Any] = dict(do_sample=False, max_new_tokens=count, min_new_tokens=count)
    attached.generate(ids, past_key_values=cache, **steps)


FIRST = partial(answer, "fastkvzip+hubkv@model"), partial(answer, "fastkvzip@model")
GRAPH = kv.GraphSettings(8, adaptive=False)
CASES = [
    Case("h2o_mass", "32 query heads, 8 key heads of 128, a prompt of 512 tokens, bfloat16",
         partial(last_queries(512, values=True), 512, torch.bfloat16), mass, forward,
         "attention forward"),
    *(
        Case("hubkv_refine + retain", f"[36, {batch}, 8, {tokens}] bfloat16",
             partial(table5, tokens, batch), refine_and_retain, refine_and_sort,
             "eager refinement and stable sort", paper)
        for tokens, papers in TABLE5.items() for batch, paper in zip((1, 4), papers, strict=True)
    ),
    *(
        Case("random_expander", f"{tokens} × {channels}",
             partial(dict, tokens=tokens, channels=channels, token_degree=channels // 32),
             kv.random_expander, configuration_model, "networkx multigraph", paper)
        for tokens, channels, paper in (
            (96, 1024, "< 150"), (1920, 1024, "< 150"), (8160, 1024, "< 150"),
            (4096, 4096, "< 3000"),
        )
    ),
    *(
        Case("time to first token", f"fastkvzip, {tokens} tokens, 95% removed",
             partial(dict, tokens=tokens, count=1, ratio=RATIO), *FIRST, "without hubkv")
        for tokens in (1024, 2048)
    ),
    *(
        Case("decoding latency", f"{name}, {tokens} tokens, {KEEP} kept, {NEW} new",
             partial(dict, tokens=tokens, count=NEW, keep=KEEP),
             partial(answer, f"{name}+graphkv", refined=GRAPH), partial(answer, name),
             "without graphkv")
        for name in ("snapkv", "pyramidkv", "knorm") for tokens in (1024, 2048)
    ),
]  # fmt: skip
