"""Functions that compare one row of a batch with a call on this row alone."""

from itertools import product
from typing import Any

import torch
from torch import Tensor

from reference import Scored
from spec_tests.refinement.strategies import shape_of_rows
from spec_tests.retain.strategies import AXES


def entries(cache: Any, heads: torch.Size) -> list[tuple[Tensor, ...]]:
    """Return keys, values and positions of each head, for dense and ragged caches."""
    if hasattr(cache, "offsets"):
        spans = zip(cache.offsets[:-1].tolist(), cache.offsets[1:].tolist(), strict=True)
        return [tuple(part[a:b] for part in cache[:3]) for a, b in spans]
    return [tuple(part[head] for part in cache[:3]) for head in product(*map(range, heads))]


def of_row(found: list[Any], heads: torch.Size, row_index: tuple[Any, ...]) -> list[Any]:
    """Return the elements that belong to one row, from a list with one element a head."""
    numbers = torch.arange(heads.numel()).view(heads)
    return [found[number] for number in numbers[row_index].flatten().tolist()]


def kept_mask(cache: Any, shape: torch.Size) -> Tensor:
    """Mark the entries that a cache holds."""
    kept = torch.zeros(shape, dtype=torch.bool)
    found = entries(cache, shape[:-1])
    for head, entry in zip(product(*map(range, shape[:-1])), found, strict=True):
        kept[head][entry[2]] = True
    return kept


def row_indices_and_starts(x: dict[str, Any]) -> list[tuple[tuple[Any, ...], int]]:
    """Return the index of each row, and its first real token."""
    model, found = x["scope"] == "model", []
    for row in product(*map(range, shape_of_rows(x["scored"].scores, x["scope"]))):
        start = 0 if x["valid"] is None else int((~x["valid"][row]).sum())
        found.append(((slice(None), *row) if model else row, start))
    return found


def alone(x: dict[str, Any], row_index: tuple[Any, ...], start: int) -> dict[str, Any]:
    """Return the call on one row without its padding."""
    scores, protected = (part[row_index][..., start:] for part in x["scored"])
    keep = x["keep"]
    pool = scores.shape[-AXES[x["scope"]] :].numel()
    if isinstance(keep, Tensor):
        keep = keep[row_index[1:] if x["scope"] == "model" else row_index].clamp(max=pool)
    elif keep is not None:
        keep = min(keep, pool)
    names = [name for name in ("keys", "values", "queries") if x.get(name) is not None]
    parts = {name: x[name][row_index][..., start:, :] for name in names}
    return x | parts | dict(scored=Scored(scores, protected), keep=keep, valid=None)


def count_entries_per_head(cache: Any, shape: torch.Size) -> Tensor:
    """Return how many entries each head keeps."""
    kept = [len(head[2]) for head in entries(cache, shape)]
    return torch.tensor(kept, dtype=torch.int64).view(shape)
