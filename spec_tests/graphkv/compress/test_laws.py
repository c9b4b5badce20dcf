"""GraphKV as a whole: one kept set a layer, one budget a layer: §4.1, §6."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor

from reference import GraphSettings, HexConfig, Scored
from spec_tests.accuracy import assert_equal
from spec_tests.compress.batch_rows import entries
from spec_tests.inputs import INPUTS
from spec_tests.refinement.strategies import DECIDED, GRAPHS, settings_id, unprotected_scores
from spec_tests.strategies import generators

LENGTHS = {999: 0, 1000: 1, 1999: 1, 2000: 2, 3999: 3, 5000: 3}
"""Number of neighbours of a source, at most three, by the number of tokens of an input."""
IN_HEX = (2048, 1500, 700)
"""Tokens of each row of a batch that HEX stores."""
HEX = HexConfig(block=64, density=0.0, recent=0)


@pytest.mark.spec("GraphKV-4.1")
@given(INPUTS["graphkv_compress"])
def test_a_layer_keeps_one_set_for_all_its_heads(impl, x):
    x |= dict(refinement=x["refinement"]._replace(per_head=False))
    shape = x["scored"].scores.shape
    found = entries(impl.graphkv_compress(**x), shape[:-1])
    for first in range(0, len(found), shape[-2]):
        for _, _, positions in found[first : first + shape[-2]]:
            assert_equal(positions, found[first][2])


@pytest.mark.spec("GraphKV-4.1", "GraphKV-6.1")
@pytest.mark.parametrize("settings", GRAPHS, ids=settings_id)
def test_what_is_kept_ranks_first_by_the_refined_scores(impl, settings):
    x: dict[str, Any] = DECIDED | dict(ratio=0.5)
    knobs = settings._asdict()
    scores, aside = x["scored"]
    refined = impl.graphkv_refine(
        scores, x["keys"], keep=32, protected=aside, values=x["values"], **knobs
    )
    kept = impl.graphkv_select(**x, refinement=settings, length=40_000)
    assert (kept | ~aside).all()
    assert (kept.sum(-1) == 32).all()
    last = refined.where(kept & ~aside, torch.inf).amin(-1)
    assert (last >= refined.where(~kept, -torch.inf).amax(-1)).all()


def twice(x: dict[str, Any]) -> dict[str, Any]:
    """Put two copies of a call along a new first axis."""
    both = {k: v.expand(2, *v.shape) if isinstance(v, Tensor) else v for k, v in x.items()}
    return both | dict(scored=Scored(*(part.expand(2, *part.shape) for part in x["scored"])))


@pytest.mark.spec("GraphKV-4.1", "GraphKV-6.1")
@pytest.mark.parametrize("axes", [1, 2])
@given(x=INPUTS["graphkv_compress"], seed=generators)
def test_each_layer_and_each_row_of_it_has_a_budget_of_its_own(impl, axes, x, seed):
    while x["scored"].scores.ndim < 2 + axes:
        x = twice(x)
    shape = x["scored"].scores.shape
    keep = torch.randint(0, shape[-1] + 1, shape[:axes], generator=seed)
    together = entries(impl.graphkv_compress(**x | dict(keep=keep, ratio=None)), shape[:-1])
    heads = shape[axes:-1].numel()
    for number, index in enumerate(product(*map(range, keep.shape))):
        part_of_batch = x | {name: x[name][index] for name in ("keys", "values")}
        part_of_batch |= dict(scored=Scored(*(part[index] for part in x["scored"])))
        part_of_batch |= dict(valid=None if x["valid"] is None else x["valid"][index])
        left = impl.graphkv_compress(**part_of_batch | dict(keep=int(keep[index]), ratio=None))
        apart = entries(left, shape[axes:-1])
        for now, then in zip(together[number * heads :], apart, strict=False):
            assert_equal(now, then)


@pytest.mark.spec("GraphKV-6.2")
@pytest.mark.parametrize(
    ("length", "expected"), [(None, [0, 1]), (0, [0, 1]), (999, [0, 1]), (1000, [0, 2])]
)
def test_an_input_below_a_thousand_tokens_has_no_neighbours(impl, length, expected):
    """Token 1 has the key of the best token, and decays if the graph has an edge."""
    keys = torch.tensor([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
    scored = unprotected_scores(torch.tensor([[3.0, 2.0, 1.0]]))
    cache = impl.graphkv_compress(keys, keys, scored, GraphSettings(1), keep=2, length=length)
    assert cache.positions.tolist() == [expected]


def crowds(*order):
    """Rows of the given lengths, each starting with its best token and three copies of it."""
    size = max(order)
    keys, scores = torch.zeros(len(order), 1, size, 2), torch.zeros(len(order), 1, size)
    valid = torch.arange(size) >= size - torch.tensor(order)[:, None]
    for row, length in enumerate(order):
        first = size - length
        keys[row, 0, first : first + 4, 0] = 1.0
        scores[row, 0, first:] = 1.0
        scores[row, 0, first : first + 4] = torch.tensor([9.0, 8.0, 7.0, 6.0])
    return keys, unprotected_scores(scores), valid


@pytest.mark.spec("GraphKV-6.2")
@pytest.mark.parametrize("order", [tuple(LENGTHS), tuple(reversed(LENGTHS))])
def test_each_row_has_neighbours_by_its_own_thousands_without_its_padding(impl, order):
    keys, scored, valid = crowds(*order)
    settings = GraphSettings(3, signal="evict")
    cache = impl.graphkv_compress(keys, keys, scored, settings, keep=4, valid=valid)
    for row, length in enumerate(order):
        copies = cache.positions[row, 0] - (max(order) - length)
        left = [token for token in copies.tolist() if 0 < token < 4]
        assert left == list(range(LENGTHS[length] + 1, 4))


@pytest.mark.spec("GraphKV-6.2")
def test_each_row_of_hex_has_neighbours_by_its_own_thousands(impl):
    """Each row keeps its source, and the right ones of three copies."""
    keys, scored, valid = crowds(*IN_HEX)
    settings = GraphSettings(3, signal="evict", adaptive=True)
    x: dict[str, Any] = dict(refinement=settings, keep=4, valid=valid, store=HEX)
    for compress in (impl.compress, impl.graphkv_compress):
        cache = compress(keys, keys, scored, **x)
        assert hasattr(cache, "blocks"), f"stored as {type(cache).__name__}, not as HEX"
        for row, (length, evicted) in enumerate(zip(IN_HEX, (2, 1, 0), strict=True)):
            best = cache.blocks[0].dynamic[row, max(IN_HEX) - length :][:4]
            assert best.tolist() == [True, *[False] * evicted, *[True] * (3 - evicted)]
