"""`python -m optimized.bench.model_memory [TOKENS ...]`: memory and time of a prompt and a step.

A model of two layers reads a prompt with the cache of `transformers` and with each compressed one.
A line has three ratios to the full cache: the peak of allocated bytes without weights while the
prompt is read, by PyTorch's CPU profiler; the bytes of the cache afterwards; and the CPU time of a
decoding step, the median over pairs of steps. The model's own peak hides that of a compression, so
the line ends with the peak of each function that scored or compressed, without its arguments, in
multiples of one layer's keys and values.
"""

import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache, partial, wraps
from itertools import accumulate
from statistics import median
from time import process_time
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

import optimized
from optimized import models
from optimized.models.systems import system_named

SYSTEMS = ("snapkv+hubkv@head", "snapkv+hubkv@model", "snapkv+graphkv", "kvzip", "cake")
SYSTEMS += ("expected_attention", "hex-4", "hex-3", "kcvt-4", "kivi-4", "gear")
RATIO, STEPS = 0.75, 20
KV_HEADS, WIDTH = 4, 64
CONFIG = LlamaConfig(
    hidden_size=1024,
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


def random_prompt(tokens: int) -> torch.Tensor:
    """Return random token ids."""
    drawn = torch.Generator().manual_seed(0)
    return torch.randint(1, CONFIG.vocab_size, (1, tokens), generator=drawn)


def most_alive(call: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a call and its peak of allocated bytes."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        result = call()
    profiler: Any = seen.profiler
    events = profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return result, max(accumulate((nbytes for _, nbytes in changes), initial=0))


class Weighed(ModuleType):
    """The package `optimized`, with the largest peak of allocated bytes of each function called."""

    peaks: dict[str, int]

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the package; calls of a function are weighed."""
        function = getattr(optimized, name)

        @wraps(function)
        def call(*args: Any, **settings: Any) -> Any:
            result, peak = most_alive(partial(function, *args, **settings))
            self.peaks[name] = max(peak, self.peaks.get(name, 0))
            return result

        return call if isinstance(function, FunctionType) else function


@torch.no_grad()
def plain(ids: torch.Tensor) -> DynamicCache:
    """Return the `transformers` cache of a prompt without its last token."""
    cache = DynamicCache(config=CONFIG)
    model(ours=False)(input_ids=ids[:, :-1], past_key_values=cache, logits_to_keep=1)
    return cache


@torch.no_grad()
def step(ours: bool, cache: Any) -> float:
    """Return the CPU seconds in which a model reads one more token."""
    start = process_time()
    model(ours)(input_ids=torch.ones(1, 1).long(), past_key_values=cache)
    return process_time() - start


def measured(tokens: int) -> Iterator[str]:
    """Yield a line of the table for the full cache and for each system."""
    ids = random_prompt(tokens)
    layer = 2 * KV_HEADS * tokens * WIDTH * model(ours=False).dtype.itemsize
    whole = CONFIG.num_hidden_layers * layer
    full, highest = most_alive(partial(plain, ids))
    yield f"full cache: {highest / layer:.2f} layers' keys and values at the peak of the prompt"
    for system in SYSTEMS:
        ratio = RATIO if system_named(system).evicts else None
        read = partial(models.compressed, model(ours=True), system, ids, ratio=ratio)
        cache, peak = most_alive(read)
        weighed = Weighed(optimized.__name__)
        weighed.peaks = {}
        read(kv=weighed)
        pairs = [(step(False, full), step(True, cache)) for _ in range(STEPS)][1:]
        slower = median(ours / theirs for theirs, ours in pairs)
        shares = {name: peak / layer for name, peak in weighed.peaks.items()}
        parts = ", ".join(f"{name} {part:.2f}" for name, part in shares.items() if part >= 0.01)
        yield f"{system}: {peak / highest:.2f}, {cache.nbytes / whole:.2f}, {slower:.2f}; {parts}"


if __name__ == "__main__":
    for tokens in [int(word) for word in sys.argv[1:]] or [4096]:
        print(f"{tokens} tokens: peak of the prompt, bytes stored, a step; peaks of functions")
        for line in measured(tokens):
            print(line, flush=True)
