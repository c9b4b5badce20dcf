"""The time of one side of a case: `pytest optimized/bench/test_time_case.py --bench gather`."""

import time
from importlib import import_module
from typing import Any

import torch

from optimized.bench.timing_harness import moved


def test_timing(benchmark: Any, device: torch.device, bench: str, at: int, side: str) -> None:
    """Time one side: the first call, then as many as pytest-benchmark takes."""
    case = import_module(f"optimized.bench.bench_{bench}").CASES[at]
    inputs, work = moved(case.inputs(), device), getattr(case, side)

    def call() -> None:
        work(**inputs)
        if device.type == "cuda":
            torch.cuda.synchronize()

    start = time.perf_counter()
    call()
    benchmark.extra_info.update(at=at, side=side, first=time.perf_counter() - start)
    benchmark(call)
