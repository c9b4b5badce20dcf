"""A cache without the evicted entries, which are removed from memory and not only masked."""

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.contract.enforce import requires


class DenseCache(NamedTuple):
    """Entries where every head keeps equally many, in position order.

    Source:
        GraphKV-4.1.
    """

    keys: Float[Tensor, "*heads kept width"]
    values: Float[Tensor, "*heads kept width"]
    positions: Int64[Tensor, "*heads kept"]

    def ragged(self) -> "RaggedCache":
        """Return the same entries, one head after another."""
        heads, kept = self.keys.shape[:-2].numel(), self.keys.shape[-2]
        offsets = kept * torch.arange(heads + 1, device=self.keys.device)
        return RaggedCache(
            self.keys.flatten(0, -2), self.values.flatten(0, -2), self.positions.flatten(), offsets
        )


class RaggedCache(NamedTuple):
    """Entries where heads keep different numbers, one head after another.

    Head `h` has the entries `offsets[h]` to `offsets[h + 1]`, in position order. Heads are numbered
    as in the flattened leading axes.

    Source:
        GraphKV-4.1.
    """

    keys: Float[Tensor, "entries width"]
    values: Float[Tensor, "entries width"]
    positions: Int64[Tensor, " entries"]
    offsets: Int64[Tensor, " bounds"]

    def ragged(self) -> "RaggedCache":
        """Return the cache itself."""
        return self


def evict(
    keys: Float[Tensor, "*heads tokens width"],
    values: Float[Tensor, "*heads tokens width"],
    kept: Bool[Tensor, "*heads tokens"],
) -> DenseCache | RaggedCache:
    r"""Copy the kept entries out of a cache, so that the others can be freed.

    $$K_s = (k_i)_{i \in S}, \qquad V_s = (v_i)_{i \in S}$$

    Args:
        keys: $K$, one row for each token.
        values: $V$.
        kept: the retained set $S$ of each head, as `retain` marks it.

    Returns:
        A `DenseCache` where every head keeps equally many entries, else a `RaggedCache`; `ragged()`
        of either is a `RaggedCache`. Both hold entries in position order and share no storage with
        `keys` and `values`.

    Source:
        HubKV-1, GraphKV-4.1. In words (§2.1 of HubKV): "selects a retained subset $S \subset V$
        under budget $|S| \leq B$". Copies in order of position are ours (C8).

    Reading:
        C8, C10: position order; the bytes are really freed.
    """
    *heads, _, width = keys.shape
    counts = kept.sum(-1).flatten()
    offsets = F.pad(counts.cumsum(0), (1, 0))
    entries = int(offsets[-1])
    left = RaggedCache(
        keys=keys.new_empty(entries, width),
        values=values.new_empty(entries, width),
        positions=offsets.new_empty(entries),
        offsets=offsets,
    )
    for h, head in enumerate(product(*map(range, heads))):
        span = slice(offsets[h], offsets[h + 1])
        positions = kept[head].nonzero()[:, 0]
        left.positions[span] = positions
        left.keys[span] = keys[head][positions]
        left.values[span] = values[head][positions]
    if not bool((counts == counts[:1]).all()):
        return left
    count = entries // max(1, len(counts))
    return DenseCache(
        keys=left.keys.reshape(*heads, count, width),
        values=left.values.reshape(*heads, count, width),
        positions=left.positions.reshape(*heads, count),
    )


def tensor_holding(object: object) -> None:
    """Refuse an object that can hold no tensor: a number, a string, or code."""
    holds = isinstance(object, (Tensor, dict, list, tuple, set, frozenset, deque))
    slotted = any("__slots__" in vars(kind) for kind in type(object).__mro__)
    code = isinstance(object, (type, ModuleType, FunctionType))
    if code or not (holds or slotted or hasattr(object, "__dict__")):
        raise TypeError(f"object must be a tensor or hold tensors, got {object!r}")


@requires(tensor_holding)
def stored_bytes(object: object) -> int:
    r"""The number of bytes of memory that an object keeps alive.

    $$\sum_{\text{distinct storages}} \text{bytes of the storage}$$

    Args:
        object: a tensor, or anything that holds tensors: tuples, lists, sets, dictionaries,
            objects with attributes or slots, nested at will.

    Returns:
        The bytes of every storage that a reachable tensor points into, each counted once and
        whole: a view keeps all of its parent alive.

    Raises:
        TypeError: a tensor in `object` is not strided.

    Source:
        GraphKV-Tab5. Ours: the table counts a formula, this the memory (C10).

    Reading:
        C10: this is the only measure of a cache's size.
    """
    storages: dict[int, int] = {}
    for tensor in tensors_within(object, set()):
        if tensor.layout != torch.strided:  # a sparse tensor has several storages
            raise TypeError(f"object must hold strided tensors, got layout {tensor.layout}")
        storage = tensor.untyped_storage()
        storages[storage._cdata] = storage.nbytes()  # the data address of every meta tensor is 0
    return sum(storages.values())


def tensors_within(value: object, seen: set[int]) -> Iterator[Tensor]:
    """Yield every tensor that `value` holds, each object once."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        yield value
    else:
        for part in parts_of(value):
            yield from tensors_within(part, seen)


def parts_of(value: object) -> list[object]:
    """Return the objects that an object holds directly; numbers, strings and code hold none."""
    if isinstance(value, (type, ModuleType, FunctionType)):
        return []
    parts = list(getattr(value, "__dict__", {}).values())
    if isinstance(value, dict):
        parts += [*value.keys(), *value.values()]
    elif isinstance(value, (list, tuple, set, frozenset, deque)):
        parts += value
    for kind in type(value).__mro__:
        slots = [slot for slot in vars(kind).values() if isinstance(slot, MemberDescriptorType)]
        for slot in slots:
            with suppress(AttributeError):  # a slot may be empty
                parts.append(slot.__get__(value))
    return parts
