"""Batch rows of different lengths: each must have the result of the row without padding."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch
from torch import Tensor

from spec_tests.accuracy import assert_close

Inputs = dict[str, Any]


def starts(x: Inputs) -> Iterator[tuple[tuple[int, ...], int]]:
    """Yield the index of each batch row, and its first real token."""
    *batch, _, tokens, _ = x["keys"].shape
    for row in product(*map(range, batch)):
        yield row, 0 if x["valid"] is None else tokens - int(x["valid"][row].sum())


def alone(x: Inputs) -> Iterator[tuple[tuple[int, ...], Inputs]]:
    """Yield the index of each batch row, and its queries and keys without padding."""
    for row, first in starts(x):
        real = x["keys"].shape[-2] - first
        tensors = {name: x[name] for name in ("queries", "keys") if name in x}
        yield row, {k: v[row][:, max(0, v.shape[-2] - real) :] for k, v in tensors.items()}


def assert_rows(
    actual: Tensor, x: Inputs, oracle: Callable[..., list[list[float]]], largest: float = 1.0
) -> None:
    """Assert that each row has the oracle's scores for the row alone, and 0 at padding."""
    for row, parts in alone(x):
        padding = actual.shape[-1] - parts["keys"].shape[-2]
        assert (actual[row][:, :padding] == 0).all()
        if padding < actual.shape[-1]:
            scores = oracle(**{name: tensor.tolist() for name, tensor in parts.items()})
            assert_close(actual[row][:, padding:], torch.tensor(scores).double(), largest)
