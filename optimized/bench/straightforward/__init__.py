"""The plain way to each function: what a user writes in at most ten lines of PyTorch.

Each function here has the name of a public function of `optimized`, takes the arguments that
`inputs` beside it draws, and returns the same numbers on ordinary input. It is the best plain way:
unsorted `topk`, `index_select`, one product for each group of query heads. It has no guard, and no
rule for ties, padding or extreme numbers. `python -m optimized.bench ratios` times it.
"""

from importlib import import_module

from optimized.bench.straightforward.rows import ROWS, Row

for _part in ("attention", "selection", "scorers", "graphkv", "hex"):
    import_module(f"optimized.bench.straightforward.{_part}")

__all__ = ["ROWS", "Row"]
