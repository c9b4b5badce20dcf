"""Triton's interpreter, its programs in another order or at other places than it would run them."""

from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import triton.language as tl
from torch import Tensor
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from optimized import kernels
from optimized._composed import modules

Order = Callable[[int], list[int]]

ORDERS: dict[str, Order] = {
    "backwards": lambda count: [*range(count)][::-1],
    "shuffled": lambda count: Random(count).sample(range(count), count),
}


def patch_once() -> None:
    """Turn Triton's language into the interpreter's for good, and let it remember types.

    It would do so again for every call of every device function, make the type of every number
    anew, and compare sums of integers with bounds that nobody asks for. And it would round a fused
    product before it adds to it.
    """
    if not hasattr(interpreter._patch_lang, "__wrapped__"):
        interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
        interpreter._patch_lang = wraps(interpreter._patch_lang)(lambda _: UNPATCHED)
        interpreter._get_np_dtype = by_name(interpreter._get_np_dtype)
        remember_shapes()
        builder = interpreter.interpreter_builder
        builder.options = replace(builder.options, sanitize_overflow=False)
        builder.create_fma = fused
        hold_to_tensors(builder)


def fused(x: Any, y: Any, z: Any) -> Any:
    """Multiply and add numbers of at most 32 bits, and round once, as a GPU does."""
    with np.errstate(invalid="ignore"):  # infinity less infinity
        exact = x.data.astype(np.float64) * y.data + z.data
    return interpreter.TensorHandle(exact.astype(z.data.dtype), z.dtype.scalar)


def hold_to_tensors(builder: Any) -> None:
    """Let programs read and write the tensors they were given, and nothing beside them.

    On a GPU that ends a process, or not, by what lies beyond.
    """
    executor: Any = interpreter.GridExecutor
    take, starts, ends = executor._init_args_hst, list[int](), list[int]()

    def taken(self: Any, args: Any, kwargs: Any) -> Any:
        given = take(self, args, kwargs)
        tensors = [x for x in (*given[0], *given[1].values()) if isinstance(x, Tensor)]
        memory = [x.untyped_storage() for x in tensors]
        spans = sorted({(x.data_ptr(), x.data_ptr() + x.nbytes()) for x in memory})
        starts[:] = [start for start, _ in spans]
        ends[:] = [end for _, end in spans]
        return given

    def hold(pointers: Any, mask: Any) -> None:
        there = pointers.data[mask.data.astype(bool)]
        if there.size:
            first, last = int(there.min()), int(there.max())
            size = pointers.get_element_ty().primitive_bitwidth // 8 or 1
            place = bisect(starts, first) - 1
            assert place >= 0, "before all tensors"
            beyond = last + size - ends[place]
            assert beyond <= 0, f"{beyond} bytes beyond a tensor"

    def holding(name: str, mask_at: int) -> None:
        run = getattr(builder, name)

        @wraps(run)
        def held(pointers: Any, *rest: Any) -> Any:
            hold(pointers, rest[mask_at])
            return run(pointers, *rest)

        setattr(builder, name, held)

    executor._init_args_hst = taken
    holding("create_masked_load", 0)
    holding("create_masked_store", 1)


UNPATCHED = SimpleNamespace(restore=lambda: None)


def by_name(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function of a type of Triton's that remembers what it said; a name is of one."""
    known: dict[str, Any] = {}

    @wraps(function)
    def said(kind: Any) -> Any:
        if kind.name not in known:
            known[kind.name] = function(kind)
        return known[kind.name]

    return said


def remember_shapes() -> None:
    """Let types and values take what follows from their shape from those like them."""
    make_type, make_value = tl.block_type.__init__, tl.tensor.__init__
    spread = TritonSemantic.broadcast_impl_value
    shapes: dict[Any, Any] = {}
    types: dict[Any, Any] = {}
    values: dict[str, Any] = {}

    @wraps(make_type)
    def remembered_type(self: Any, element_ty: Any, shape: Any) -> None:
        sides = [side.value if type(side) is tl.constexpr else side for side in shape]
        key = type(shape), element_ty.name, *sides
        if key not in types:
            make_type(self, element_ty, shape)
            types[key] = self.shape, self.numel, self.name
        self.element_ty = element_ty
        self.shape, self.numel, self.name = types[key]

    @wraps(make_value)
    def remembered_value(self: Any, handle: Any, type: Any) -> None:
        if type.name not in values:
            make_value(self, handle, type)
            sides = (*(side.value for side in self.shape),)
            values[type.name] = shapes.setdefault(sides, (self.shape, self.numel))
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = values[type.name]

    @wraps(spread)
    def spread_if_unlike(self: Any, lhs: Any, rhs: Any) -> tuple[Any, Any]:
        return (lhs, rhs) if lhs.shape is rhs.shape else spread(self, lhs, rhs)

    tl.block_type.__init__, tl.tensor.__init__ = remembered_type, remembered_value
    TritonSemantic.broadcast_impl_value = spread_if_unlike


@contextmanager
def programs(order: Order) -> Iterator[None]:
    """Run the programs of every launch in an order, given how many there are."""
    builder = interpreter.interpreter_builder
    places: list[int] = []

    def elsewhere(self, x: int, y: int, z: int) -> None:
        rows, columns, depth = self.grid_dim
        number = (x * columns + y) * depth + z
        if number == 0:
            places[:] = order(rows * columns * depth)
        rest, z = divmod(places[number], depth)
        self.grid_idx = (*divmod(rest, columns), z)

    with patch.object(type(builder), "set_grid_idx", elsewhere):
        yield


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    """Let a program own as few elements, so that small inputs take several of them."""
    homes = modules(kernels.__name__)
    before = [(home, home.BLOCK) for home in homes if hasattr(home, "BLOCK")]
    try:
        for home, _ in before:
            vars(home)["BLOCK"] = size
        yield
    finally:
        for home, block in before:
            vars(home)["BLOCK"] = block
