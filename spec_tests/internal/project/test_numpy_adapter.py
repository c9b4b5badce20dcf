"""The adapter for modules of arrays; `docs/third_party` runs the suite on one."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from spec_tests.accuracy import assert_equal
from spec_tests.numpy_adapter import adapted, to_arrays, to_tensors
from spec_tests.program import NotSupported


@dataclass
class Held:
    """A data class of an array and a tuple of arrays."""

    scores: Any
    several: tuple[Any, ...]


class Pair(NamedTuple):
    """A named tuple of an array and a number."""

    scores: Any
    count: Any


def through(value):
    """Return a value after a round trip through a function of arrays, and what the function saw."""
    seen = []
    module = SimpleNamespace(same=lambda given: seen.append(given) or given)
    return adapted(module).same(value), seen[0]


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([[1.0, 2.0]], dtype=torch.float16),
        torch.zeros(2, 0, dtype=torch.bool),
        torch.arange(12.0).reshape(3, 4).mT[1:],
        (torch.ones(2), [3, "word", None]),
        Pair(torch.ones(2), 2),
        {"scores": torch.arange(3)},
        torch.float16,
    ],
    ids=str,
)
def test_what_is_handed_over_comes_back(value):
    back, seen = through(value)
    assert_equal(back, value)
    assert not isinstance(seen, torch.Tensor | torch.dtype)


def test_tensors_in_a_data_class_are_arrays_too():
    back, seen = through(Held(torch.ones(2), (torch.zeros(3),)))
    assert isinstance(seen.scores, np.ndarray)
    assert isinstance(seen.several[0], np.ndarray)
    assert_equal(back.several, (torch.zeros(3),))


def test_an_array_shares_the_tensors_memory_if_it_can():
    tensor = torch.ones(3)
    to_arrays(tensor)[0] = 7
    assert_equal(tensor, torch.tensor([7.0, 1.0, 1.0]))
    for array in (np.arange(4.0)[::-1], np.broadcast_to(np.float64(2), (3,))):
        assert_equal(to_tensors(array).tolist(), array.tolist())


def test_a_function_that_is_handed_over_is_called_with_arrays():
    module = SimpleNamespace(twice=lambda score, values: score(score(values)))
    assert_equal(adapted(module).twice(lambda t: t.add(1), torch.zeros(2)), torch.full((2,), 2.0))


def test_numpys_warnings_are_silent_and_bfloat16_is_unheard():
    module = SimpleNamespace(inverse=lambda scores: 1 / scores)
    assert_equal(adapted(module).inverse(torch.zeros(1)), torch.tensor([torch.inf]))
    with pytest.raises(NotSupported, match="bfloat16"):
        adapted(module).inverse(torch.zeros(1).bfloat16())


class Frozen:
    """An array as in JAX: read-only, and readable by NumPy."""

    def __init__(self, array):
        self.array, self.shape = np.array(array), array.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype=dtype, copy=copy)


def test_arrays_of_another_library_are_made_and_read():
    seen = []

    def same(scores, parts):
        seen.extend([scores, parts[0]])
        return scores, {"part": parts[0]}

    tensor = torch.arange(3.0)
    back = adapted(SimpleNamespace(same=same), Frozen).same(tensor, parts=(tensor > 1,))
    assert [type(array) for array in seen] == [Frozen, Frozen]
    assert_equal(back, (tensor, {"part": tensor > 1}))
