"""The plain ways of the benchmarks give the reference's numbers."""

import pytest
import torch
from torch.utils._pytree import tree_leaves

import reference
from optimized.bench import ratios
from optimized.bench.straightforward import ROWS
from spec_tests.accuracy import assert_near, assert_same_kind

TOKENS = 96
LONGER = {"graphkv_refine": 576, "graphkv_compress": 576}
"""Functions whose rows keep 512 tokens."""


def tensors_of(result):
    """Return the tensors of a result, in order, without infinite scores."""
    every = [torch.as_tensor(x) for x in tree_leaves(result) if isinstance(x, torch.Tensor | int)]
    return [torch.where(x.isinf(), 0, x) if x.is_floating_point() else x for x in every]


@pytest.mark.parametrize("name", ROWS)
def test_the_plain_way_gives_the_numbers_of_the_reference(name):
    row = ROWS[name]
    given = row.inputs(LONGER.get(name, TOKENS), torch.float32)
    wanted = tensors_of(row.compared(getattr(reference, name)(**given)))
    for found, expected in zip(tensors_of(row.plain(**given)), wanted, strict=True):
        if expected.is_floating_point():
            assert_same_kind(found, expected)
            assert_near(found, expected)
        else:
            assert torch.equal(found, expected)


def test_the_page_shows_the_rows_of_the_file():
    page, table = ratios.PAGE.read_text(), ratios.Table(ratios.FILE, anew=False)
    assert ratios.with_tables(page, [*table.lines.values()]) == page
