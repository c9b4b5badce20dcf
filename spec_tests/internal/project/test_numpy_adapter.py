"""The adapter for modules of arrays; `docs/third_party` runs the suite on one."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.numpy_adapter import adapted
from spec_tests.program import NotSupported


@dataclass
class Scores:
    """A data class of an array and a tuple of arrays."""

    scores: Any
    parts: tuple[Any, ...]


class Pair(NamedTuple):
    """A named tuple of an array and a number."""

    scores: Any
    count: Any


class Frozen:
    """An array as in JAX: read-only, and readable by NumPy."""

    def __init__(self, array):
        self.array, self.shape = np.array(array), array.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype=dtype, copy=copy)


@pytest.mark.parametrize(
    "value",
    [
        torch.zeros(2, 0, dtype=torch.float16),
        torch.arange(12.0).reshape(3, 4).mT[1:],
        (torch.ones(2), [3, "word", None]),
        Pair(torch.ones(2), 2),
        {"scores": torch.arange(3)},
        torch.float16,
        Scores(torch.ones(2), (torch.zeros(3),)),
    ],
    ids=str,
)
def test_what_is_handed_over_comes_back(value):
    seen = []
    module = SimpleNamespace(same=lambda given: seen.append(given) or given)
    back = adapted(module).same(value)
    if isinstance(value, Scores):
        assert isinstance(seen[0].scores, np.ndarray)
        assert isinstance(seen[0].parts[0], np.ndarray)
        back, value = back.parts, value.parts
    assert_equal(back, value)
    assert not isinstance(seen[0], torch.Tensor | torch.dtype)


def test_functions_get_arrays_without_warnings_and_without_bfloat16():
    module = adapted(
        SimpleNamespace(
            twice=lambda score, values: score(score(values)), inverse=lambda scores: 1 / scores
        )
    )
    assert_equal(module.twice(lambda t: t.add(1), torch.zeros(2)), torch.full((2,), 2.0))
    assert_equal(module.inverse(torch.zeros(1)), torch.tensor([torch.inf]))
    with pytest.raises(NotSupported, match="bfloat16"):
        module.inverse(torch.zeros(1).bfloat16())


def test_arrays_of_another_library_are_made_and_read():
    seen = []

    def same(scores, parts):
        seen.extend([scores, parts[0]])
        return scores, {"part": parts[0]}

    tensor = torch.arange(3.0)
    back = adapted(SimpleNamespace(same=same), Frozen).same(tensor, parts=(tensor > 1,))
    assert [type(array) for array in seen] == [Frozen, Frozen]
    assert_equal(back, (tensor, {"part": tensor > 1}))
