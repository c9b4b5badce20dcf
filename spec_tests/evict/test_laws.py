"""Eviction, and the bytes that it frees: HubKV §2.1, GraphKV §4.1 and Table 5."""

from collections import deque
from itertools import product, repeat
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from spec_tests.accuracy import assert_equal
from spec_tests.compress.batch_rows import entries
from spec_tests.inputs import INPUTS
from spec_tests.strategies import grid

INDEX_BYTES = 8


class Nested(NamedTuple):
    """A cache of another project."""

    layers: list[dict[str, Tensor]]
    seen: int = 0
    scale: Tensor | None = None


class Holder:
    """An object with attributes, one of which is the object itself."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor, self.me, self.name = tensor, self, "cache"


class Slotted:
    """An object without a dictionary, one of whose slots is empty."""

    __slots__ = ("__hidden", "empty")

    def __init__(self, tensor: Tensor) -> None:
        self.__hidden = tensor


class Derived(Slotted):
    """A class with its own slots and inherited ones."""

    __slots__ = ("more",)


class Labelled(list[Tensor]):
    """A list with an attribute."""

    scale: Tensor


@st.composite
def keeping(draw, heads, counts):
    """A cache whose heads keep the given numbers of six entries."""
    shape, kept = (*heads, 6, draw(st.integers(0, 3))), torch.zeros(*heads, 6, dtype=torch.bool)
    for head, count in zip(product(*map(range, heads)), counts, strict=False):
        kept[head][draw(st.permutations(range(6)))[:count]] = True
    return dict(keys=draw(grid(*shape)), values=draw(grid(*shape, low=-8)), kept=kept)


@st.composite
def ragged(draw):
    """A cache whose first head keeps nothing and whose last head keeps all."""
    counts = [0, *draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)), 6]
    return draw(keeping((len(counts),), counts))


@st.composite
def even(draw):
    """A cache whose heads all keep the same number."""
    heads = draw(st.sampled_from([(), (3,), (2, 2), (0, 2)]))
    return draw(keeping(heads, repeat(draw(st.integers(0, 6)))))


def sizes(x):
    """Return the bytes of one entry, and the number of kept entries."""
    width, element = x["keys"].shape[-1], x["keys"].element_size()
    return 2 * width * element + INDEX_BYTES, int(x["kept"].sum())


@pytest.mark.spec("HubKV-1", "GraphKV-4.1")
@given(INPUTS["evict"])
def test_each_head_holds_its_kept_entries_in_position_order(impl, x):
    shape = x["kept"].shape[:-1]
    found = zip(product(*map(range, shape)), entries(impl.evict(**x), shape), strict=True)
    for head, (keys, values, positions) in found:
        expected = [i for i, kept in enumerate(x["kept"][head].tolist()) if kept]
        assert positions.tolist() == expected
        assert_equal(keys, x["keys"][head][expected])
        assert_equal(values, x["values"][head][expected])


@pytest.mark.spec("GraphKV-4.1")
@given(even())
def test_equal_counts_give_a_dense_cache_without_waste(impl, x):
    cache, (entry, entries) = impl.evict(**x), sizes(x)
    assert cache._fields == ("keys", "values", "positions")
    assert impl.stored_bytes(cache) == entries * entry


@pytest.mark.spec("GraphKV-4.1")
@given(ragged())
def test_unequal_counts_give_a_ragged_cache_without_waste(impl, x):
    cache, (entry, entries) = impl.evict(**x), sizes(x)
    assert cache._fields == ("keys", "values", "positions", "offsets")
    counts = x["kept"].sum(-1)
    assert_equal(cache.offsets.diff(), counts)
    assert cache.offsets[0] == 0
    bounds = (len(counts) + 1) * INDEX_BYTES
    assert impl.stored_bytes(cache) == entries * entry + bounds


@pytest.mark.spec("GraphKV-4.1")
@given(INPUTS["evict"])
def test_nothing_of_the_cache_stays_alive_through_what_is_left(impl, x):
    storages = {
        x[name].untyped_storage().data_ptr() for name in ("keys", "values") if x[name].numel()
    }
    left = impl.evict(**x)
    assert storages.isdisjoint(part.untyped_storage().data_ptr() for part in left)


@pytest.mark.spec("GraphKV-Tab5")
def test_a_view_costs_what_it_keeps_alive(impl):
    parent = torch.zeros(10, 4)
    assert impl.stored_bytes(parent) == 160
    assert impl.stored_bytes(parent[:1]) == impl.stored_bytes(parent[0, 0]) == 160
    assert impl.stored_bytes(parent[:1].clone()) == 16
    assert impl.stored_bytes(parent[0].expand(50, 4)) == 160


@pytest.mark.spec("GraphKV-Tab5")
def test_a_storage_counts_once_however_it_is_reached(impl):
    tensor, other = torch.zeros(10, 4), torch.zeros(3, dtype=torch.int64)
    nested = Nested([dict(k=tensor, v=tensor.T), dict(k=tensor[2:], v=other)], scale=other[1:])
    assert impl.stored_bytes(nested) == 160 + 24
    assert impl.stored_bytes(Holder(tensor)) == 160
    assert impl.stored_bytes([Holder(tensor), {"x": (tensor, other)}, None, 7]) == 160 + 24


@pytest.mark.spec("GraphKV-Tab5")
def test_a_tensor_counts_wherever_an_object_holds_it(impl):
    tensor, other = torch.zeros(10, 4), torch.zeros(3, dtype=torch.int64)
    derived, labelled = Derived(tensor), Labelled([tensor])
    derived.more = labelled.scale = other
    for holder in ({tensor, other}, frozenset([tensor, other]), deque([tensor, other])):
        assert impl.stored_bytes(holder) == 160 + 24
    assert impl.stored_bytes(Slotted(tensor)) == 160
    assert impl.stored_bytes(derived) == impl.stored_bytes(labelled) == 160 + 24
    assert impl.stored_bytes([type("Code", (), {"table": tensor}), other]) == 24


@pytest.mark.spec("GraphKV-Tab5")
def test_tensors_without_an_address_are_told_apart(impl):
    tensor, other = torch.zeros(10, 4, device="meta"), torch.zeros(3, device="meta")
    assert impl.stored_bytes([tensor, other, tensor[1:]]) == 160 + 12
