"""What every kernel of the map is held to, whatever it computes."""

from unittest.mock import patch

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from optimized import kernels, vector
from optimized.bench.launches import launched
from optimized.bench.row import moved
from reference.contract import trusted
from spec_tests.accuracy import assert_as_accurate, assert_equal, cast
from spec_tests.inputs import INPUTS
from spec_tests.kernels.interpreter import ORDERS, programs, small_blocks

every_row = pytest.mark.parametrize("name", kernels.__all__)
few = settings(max_examples=8)  # each of several programs, in several orders
dtypes = st.sampled_from([torch.float32, torch.bfloat16, torch.float16])


@every_row
@few
@given(data=st.data(), dtype=dtypes, size=st.sampled_from([2, 4, 8]))
def test_programs_give_the_same_bits_in_any_order(name, data, dtype, size):
    inputs = cast(data.draw(INPUTS[name]), dtype)
    kernel = getattr(kernels, name)
    with small_blocks(size):
        found = kernel(**inputs)
        for order in ORDERS.values():
            with programs(order):
                assert_equal(kernel(**inputs), found)
    assert_as_accurate(found, getattr(reference, name), inputs)


@every_row
@few
@given(data=st.data(), dtype=dtypes)
def test_a_trusted_launch_looks_at_no_value(name, data, dtype):
    """Tensors without values would raise where a launcher waits for one; a graph can hold it."""
    inputs = {
        argument: moved(value, torch.device("meta"))
        for argument, value in cast(data.draw(INPUTS[name]), dtype).items()
    }
    # what the vectorised body does with the calls it is handed is its own affair
    with patch.object(vector, name):
        launched(lambda: getattr(kernels, name)(**inputs))


@triton.jit
def raced(target):
    tl.store(target, tl.program_id(0) * 12 + tl.program_id(1) * 4 + tl.program_id(2))


def test_a_race_between_programs_is_seen():
    target, grid = torch.zeros(1, dtype=torch.int32), (2, 3, 4)
    raced[grid](target)
    assert target.item() == 23, "the last program wins"
    with programs(ORDERS["backwards"]):
        raced[grid](target)
    assert target.item() == 0, "which now is the first"


def test_a_launcher_that_waits_is_seen():
    with trusted(), pytest.raises((RuntimeError, NotImplementedError)):
        bool(torch.zeros(1, device="meta").any())
