"""Speed up Triton's interpreter, make it stricter, and run its programs in other orders."""

import inspect
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import wraps
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter

from optimized import _dispatch, kernels
from optimized._dispatch import modules, tensors

Order = Callable[[int], list[int]]

ORDERS: dict[str, Order] = {
    "backwards": lambda count: [*range(count)][::-1],
    "shuffled": lambda count: Random(count).sample(range(count), count),
}


def patch_once() -> None:
    """Patch Triton's language for the interpreter once, with caches and stricter checks.

    Unpatched, the interpreter patches the language in every call of a device function, and rebuilds
    the type of every value. It also checks integers for overflow. It rounds the product of a fused
    multiply-add, which a GPU does not.
    """
    if not hasattr(interpreter._patch_lang, "__wrapped__"):
        interpreter._patch_attr = interpreted
        interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
        interpreter._patch_lang = wraps(interpreter._patch_lang)(lambda _: UNPATCHED)
        find, found = interpreter._get_np_dtype, dict[str, Any]()
        interpreter._get_np_dtype = lambda kind: (
            found.get(kind.name) or found.setdefault(kind.name, find(kind))
        )
        remember_shapes()
        builder = interpreter.interpreter_builder
        builder.options = replace(builder.options, sanitize_overflow=False)
        builder.create_fma = fused
        hold_to_tensors(builder)


def fused(x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z rounded once, as on a GPU, for numbers of at most 32 bits."""
    with np.errstate(invalid="ignore"):  # infinity minus infinity
        exact = x.data.astype(np.float64) * y.data + z.data
    return interpreter.TensorHandle(exact.astype(z.data.dtype), z.dtype.scalar)


def hold_to_tensors(builder: Any) -> None:
    """Make programs fail if they access memory outside the tensors of the launch.

    On a GPU such an access may crash the process or pass unnoticed.
    """
    executor: Any = interpreter.GridExecutor
    take, starts, ends = executor._init_args_hst, list[int](), list[int]()

    def taken(self: Any, args: Any, kwargs: Any) -> Any:
        given = take(self, args, kwargs)
        memory = [x.untyped_storage() for x in tensors((*given[0], *given[1].values()))]
        spans = sorted({(x.data_ptr(), x.data_ptr() + x.nbytes()) for x in memory})
        starts[:], ends[:] = ([span[i] for span in spans] for i in range(2))
        return given

    def checked(name: str, mask_index: int) -> None:
        run = getattr(builder, name)

        @wraps(run)
        def check(pointers: Any, *rest: Any) -> Any:
            addresses = pointers.data[rest[mask_index].data.astype(bool)]
            if addresses.size:
                first, last = int(addresses.min()), int(addresses.max())
                size = pointers.get_element_ty().primitive_bitwidth // 8 or 1
                tensor = bisect(starts, first) - 1
                assert tensor >= 0, "before all tensors"
                beyond = last + size - ends[tensor]
                assert beyond <= 0, f"{beyond} bytes beyond a tensor"
            return run(pointers, *rest)

        setattr(builder, name, check)

    executor._init_args_hst = taken
    checked("create_masked_load", 0)
    checked("create_masked_store", 1)


UNPATCHED = SimpleNamespace(restore=lambda: None)


def interpreted(home: Any, name: str, member: Any, _: Any, scope: Any) -> None:
    """Make the interpreter's semantics the default argument of a function of the language."""
    body = getattr(member, "__wrapped__", member)
    own = inspect.signature(body, follow_wrapped=False).parameters
    if "_semantic" in own:
        defaults = {p.name: p.default for p in own.values() if p.default is not p.empty}
        defaults["_semantic"] = interpreter.interpreter_semantic
        named = body.__kwdefaults__ or {}
        body.__kwdefaults__ = {key: defaults[key] for key in named} or None
        body.__defaults__ = (*(value for key, value in defaults.items() if key not in named),)
        scope.set_attr(home, name, body)
    else:
        semantic = dict(_semantic=interpreter.interpreter_semantic)
        scope.set_attr(home, name, lambda *args, **named: member(*args, **named | semantic))


def remember_shapes() -> None:
    """Cache what Triton derives from the shape of a type or value."""
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
        if lhs.shape is rhs.shape:
            return lhs, rhs
        if lhs.shape and rhs.shape:
            return spread(self, lhs, rhs)
        if lhs.shape:
            return lhs, spread_scalar(self, rhs, lhs.type)
        return spread_scalar(self, lhs, rhs.type), rhs

    def spread_scalar(self: Any, scalar: Any, like: Any) -> Any:
        kind = like.with_element_ty(scalar.dtype)
        return self.tensor(self.builder.create_splat(kind, scalar.handle), kind)

    tl.block_type.__init__, tl.tensor.__init__ = remembered_type, remembered_value
    TritonSemantic.broadcast_impl_value = spread_if_unlike


@contextmanager
def programs_in_order(order: Order) -> Iterator[None]:
    """Run the programs of every launch in an order, a function of their number."""
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


def as_on_gpu(body: Callable[..., Any]) -> Callable[..., Any]:
    """Return a body whose calls run kernels as on a GPU, wherever its tensors are."""
    return patch.object(_dispatch, "on_gpu", lambda _: True)(body)


@contextmanager
def small_blocks(size: int) -> Iterator[None]:
    """Set the number of elements of a program, so that small inputs need several programs."""
    with ExitStack() as stack:
        for home in modules(kernels.__name__):
            if hasattr(home, "BLOCK"):
                stack.enter_context(patch.object(home, "BLOCK", size))
        yield
