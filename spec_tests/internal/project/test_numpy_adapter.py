"""The adapter for modules of arrays; `docs/third_party` runs the suite on one of NumPy."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import reference
from spec_tests.accuracy import assert_equal
from spec_tests.numpy_adapter import adapted
from spec_tests.program import NotSupported


@dataclass
class Parts:
    """A data class of an array and a tuple of arrays."""

    scores: Any
    others: tuple[Any, ...]


class Frozen:
    """An array as in JAX: read-only, and readable by NumPy."""

    def __init__(self, array):
        self.array, self.shape = np.array(array), array.shape

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype=dtype, copy=copy)


@pytest.mark.parametrize(("make", "kind"), [(np.asarray, np.ndarray), (Frozen, Frozen)])
def test_what_is_handed_over_comes_back_through_arrays_of_each_library(make, kind):
    seen = []

    def same(parts, others):
        seen.extend([parts.scores, parts.others[0], others["scored"].scores])
        return (parts.scores, parts.others), others

    strided = torch.arange(12.0).reshape(3, 4).mT[1:]
    scored = reference.Scored(torch.ones(2, dtype=torch.float16), torch.zeros(2, 0) > 0)
    others = {"scored": scored, "rest": [3, "word", None, torch.float16]}
    back = adapted(SimpleNamespace(same=same), make).same(
        Parts(strided, (torch.zeros(3),)), others=others
    )
    assert {*map(type, seen)} == {kind}
    assert_equal(back, ((strided, (torch.zeros(3),)), others))


def test_functions_get_arrays_without_warnings_and_without_bfloat16():
    twice, inverse = (lambda score, values: score(score(values))), (lambda scores: 1 / scores)
    module = adapted(SimpleNamespace(twice=twice, inverse=inverse))
    assert_equal(module.twice(lambda t: t.add(1), torch.zeros(2)), torch.full((2,), 2.0))
    assert_equal(module.inverse(torch.zeros(1)), torch.tensor([torch.inf]))
    with pytest.raises(NotSupported, match="bfloat16"):
        module.inverse(torch.zeros(1).bfloat16())
