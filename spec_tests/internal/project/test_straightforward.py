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


def line(**changed):
    about = dict(function="smd", against="plain", tokens="1024", dtype="float32", shape="[4]")
    return about | changed


def test_a_second_run_measures_nothing_again_of_the_same_code(tmp_path):
    file = tmp_path / "ratios.csv"
    table = ratios.Table(file, anew=False)
    table.add(line(ratio="2"))
    again = ratios.Table(file, anew=False)
    assert [again.has(row) for row in (line(), line(tokens="4096"))] == [True, False]
    shaped = [line(tokens="", shape=shape, ratio="3") for shape in ("[5]", "[6]")]
    table.add(shaped[0])
    assert [table.has(row) for row in shaped] == [True, False]
    assert not ratios.Table(file, anew=True).has(line())
    table.about["code"] = "other"
    assert not table.has(line())


def test_the_slowest_row_is_the_first_of_the_page():
    about = dict(processor="A", threads="1")
    found = [
        line(function=name, against=ratios.PLAIN, ratio=ratio) | about
        for name, ratio in (("fast", "3"), ("slow", "0.5"))
    ]
    text = ratios.summary(found)
    assert text.index("**0.5**") < text.index("`fast`")


def test_the_page_shows_the_rows_of_the_file():
    page, table = ratios.PAGE.read_text(), ratios.Table(ratios.FILE, anew=False)
    assert ratios.with_tables(page, [*table.lines.values()]) == page
