"""Prompts through a model of two layers and hidden width 1024, with a refinement and without it.

HubKV-Tab6 times FastKVzip with HubKV and alone: the prompt, its compression, and the first step.
GraphKV-Tab3 times decoding at a budget of 512 after SnapKV, PyramidKV and KNorm, with the graph and
without it. Both tables are for models of eight billion parameters on a GPU.
"""

from copy import deepcopy
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

import optimized as kv
from optimized import models
from optimized.bench.timing_harness import HIDDEN, Case, Inputs, gate

ALSO = ("hubkv_compress", "graphkv_compress", "fastkvzip", "snapkv", "pyramidkv_budgets")
BASES = ("snapkv", "pyramidkv", "knorm")
LENGTHS, RATIO, KEEP, NEW = (1024, 2048), 0.95, 512, 32
GRAPH = kv.GraphSettings(8, adaptive=False)
KV_HEADS, WIDTH = 4, 64
CONFIG = LlamaConfig(
    hidden_size=HIDDEN,
    intermediate_size=2816,
    num_hidden_layers=2,
    num_attention_heads=4 * KV_HEADS,
    num_key_value_heads=KV_HEADS,
    head_dim=WIDTH,
    vocab_size=1000,
    max_position_embeddings=2**15,
)


@lru_cache
def model(ours: bool) -> Any:
    """Return a model of random weights, or a copy of it that attends through this package."""
    if ours:
        return models.attach(deepcopy(model(ours=False)))
    torch.manual_seed(0)
    return LlamaForCausalLM(CONFIG).eval()


def prompt(tokens: int) -> Inputs:
    """Return random tokens."""
    generator = torch.Generator().manual_seed(0)
    return dict(ids=torch.randint(1, CONFIG.vocab_size, (1, tokens), generator=generator))


def read(ids: Tensor, name: str, refinement: Any, **how: Any) -> models.EvictionCache:
    """Return the cache of a prompt after eviction by a scorer and a refinement."""
    ours = model(ours=True)
    settings: dict[str, Any] = dict(shift=True) if name == "knorm" else {}
    if name == "fastkvzip":
        settings = dict(weights=[gate(KV_HEADS)] * CONFIG.num_hidden_layers)
    scorer = models.scorer(name, ours, **settings)
    reading = models.prefill(ours, ids, watch=[scorer.watch] if scorer.watching else [])
    scores = scorer.finish(reading, keep=KEEP)
    if scores.budgets is not None:
        how = dict(budgets=scores.budgets)
    reading.cache.compress(scores.scored, kv.compress, refinement=refinement, **how)
    return reading.cache


def first_token(ids: Tensor, refinement: Any) -> None:
    """Read a prompt, compress it, and decode one token."""
    cache = read(ids, "fastkvzip", refinement, ratio=RATIO, scope="model")
    generated(ids, cache, 1)


def answer(ids: Tensor, name: str, refinement: Any) -> None:
    """Read a prompt, compress it, and decode."""
    generated(ids, read(ids, name, refinement, keep=KEEP), NEW)


def generated(ids: Tensor, cache: models.EvictionCache, count: int) -> None:
    """Decode `count` tokens; the first step reads the last token of the prompt again."""
    how: dict[str, Any] = dict(do_sample=False, max_new_tokens=count, min_new_tokens=count)
    model(ours=True).generate(ids, past_key_values=cache, **how)


CASES = [
    *(
        Case("time to first token", f"fastkvzip, {tokens} tokens, {RATIO:.0%} removed",
            partial(prompt, tokens), partial(first_token, refinement=kv.HubSettings()),
            partial(first_token, refinement=None), "without HubKV")
        for tokens in LENGTHS
    ),
    *(
        Case("decoding latency", f"{name}, {tokens} tokens, {KEEP} kept, {NEW} new",
            partial(prompt, tokens), partial(answer, name=name, refinement=GRAPH),
            partial(answer, name=name, refinement=None), "without GraphKV")
        for name in BASES
        for tokens in LENGTHS
    ),
]  # fmt: skip
