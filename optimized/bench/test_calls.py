"""The time of a call at 1024 tokens, by pytest-benchmark: what did a change to a body do?

    pytest optimized/bench -k retain --benchmark-autosave             # before the change
    pytest optimized/bench -k retain --benchmark-compare              # after it

`python -m optimized.bench ratios` makes the published table.
"""

from typing import Any

import pytest
import torch

import optimized
from optimized.bench.straightforward import ROWS


@pytest.mark.parametrize("name", ROWS)
def test_time(benchmark: Any, name: str) -> None:
    """Time a function on one thread."""
    torch.set_num_threads(1)
    benchmark(getattr(optimized, name), **ROWS[name].inputs(1024, torch.float32))
