"""`python -m optimized.bench.model_memory [TOKENS ...]`: memory and time of a prompt and a step.

A model of two layers reads a prompt with the cache of `transformers` and with each compressed one.
A line has three ratios to the full cache: the peak of allocated bytes without weights while the
prompt is read, by PyTorch's CPU profiler; the bytes of the cache afterwards; and the CPU time of a
decoding step, the median over pairs of steps.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import DynamicCache

from optimized import models
from optimized.bench.bench_models import CONFIG, KV_HEADS, WIDTH, model

SYSTEMS = ("snapkv+hubkv@head", "snapkv+hubkv@model", "snapkv+graphkv", "hex-4", "hex-3", "kcvt-4")
RATIO, STEPS = 0.75, 20


def most_alive(call: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a call and its peak of allocated bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = call()
    found: Any = seen.profiler
    events = found.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    alive = torch.tensor([nbytes for _, nbytes in changes]).cumsum(0)
    return result, int(alive.max())


def plain(ids: torch.Tensor) -> DynamicCache:
    """Return the `transformers` cache of a prompt without its last token."""
    cache = DynamicCache(config=CONFIG)
    with torch.no_grad():
        model(ours=False)(input_ids=ids[:, :-1], past_key_values=cache, logits_to_keep=1)
    return cache


def step(one: Any, cache: Any) -> float:
    """Return the CPU seconds in which a model reads one more token."""
    start = process_time()
    with torch.no_grad():
        one(input_ids=torch.ones(1, 1).long(), past_key_values=cache)
    return process_time() - start


def measured(tokens: int) -> Iterator[str]:
    """Yield a line of the table for the full cache and for each system."""
    drawn = torch.Generator().manual_seed(0)
    ids = torch.randint(1, CONFIG.vocab_size, (1, tokens), generator=drawn)
    attached, stock = model(ours=True), model(ours=False)
    whole = 2 * CONFIG.num_hidden_layers * KV_HEADS * tokens * WIDTH * stock.dtype.itemsize
    full, highest = most_alive(partial(plain, ids))
    yield f"full cache: {highest / whole:.2f} of its own bytes at the peak of the prompt"
    for system in SYSTEMS:
        ratio = RATIO if "+" in system else None
        read = partial(models.compressed, attached, system, ids, ratio=ratio)
        cache, peak = most_alive(read)
        pairs = [(step(stock, full), step(attached, cache)) for _ in range(STEPS)][1:]
        slower = median(ours / theirs for theirs, ours in pairs)
        yield f"{system}: {peak / highest:.2f}, {cache.nbytes / whole:.2f}, {slower:.2f}"


if __name__ == "__main__":
    for tokens in [int(word) for word in sys.argv[1:]] or [4096]:
        print(f"{tokens} tokens: peak of the prompt, bytes stored, a step")
        for line in measured(tokens):
            print(line, flush=True)
