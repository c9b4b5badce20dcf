"""Every operation that is timed on a GPU: with few tokens it launches its kernels, and agrees.

`python -m optimized.bench cuda` runs these tests before it times anything.
"""

from functools import partial

import pytest
import torch

import reference
from optimized import kernels
from optimized.bench.launch_recorder import recorded
from optimized.bench.operations import RATIO, moved, operations
from reference.contract.enforce import trusted
from spec_tests.accuracy import assert_as_accurate, assert_equal

FEW = {operation.kind: operation for operation in operations(small=True)}
CPU = torch.device("cpu")


def kernel_names(launches):
    return {launch.kernel.fn.__name__ for launch in launches}


@pytest.mark.parametrize("kind", FEW)
def test_with_few_tokens_its_kernels_launch_and_agree(kind, pytestconfig):
    operation = FEW[kind]
    inputs = operation.inputs(torch.device(pytestconfig.getoption("--device")))
    with trusted(), recorded(run=True) as launches:
        found = moved(operation.kernel(**inputs.kernel), CPU)
    assert kernel_names(launches)
    given = moved(inputs.eager or inputs.kernel, CPU)
    if operation.step == "select":  # equal scores after rounding may be ordered either way
        refine = partial(reference.hubkv_refine, ratio=RATIO)
        refined = moved(kernels.hubkv_refine(**inputs.kernel, ratio=RATIO), CPU)
        assert_as_accurate(refined, refine, given)
        shield = given["protected"]
        assert_equal(found, reference.retain(refined, shield, ratio=RATIO, scope="model"))
    elif operation.name == "hex_decode":
        assert_as_accurate(found, lambda **x: reference.hex_decode(**x).output, given)
    else:
        options = {} if operation.step == "decode" else getattr(operation.kernel, "keywords", {})
        assert_as_accurate(found, partial(getattr(reference, operation.name), **options), given)


def test_what_is_timed_launches_nothing_else():
    for operation in operations(small=False):
        few = FEW[operation.kind]
        assert kernel_names(operation.launches) <= kernel_names(few.launches), operation.title
        assert ("128]" in few.shape) == ("128]" in operation.shape), "of another width"
