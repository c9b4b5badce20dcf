"""The signature is the contract: its annotations are read once, and calls are held to them.

The door is the package. `reference.f` is guarded, and so is `optimized.f`, by the signature of
`reference.f`; the modules behind the door call each other freely, so that a call is checked once,
however deep it goes.

Types, shapes and numbers are always checked. What must look at a tensor's values is left out while
`torch.compile` traces, because a graph cannot branch on data; while a CUDA graph is captured; and
within `trusted()`, where a GPU need not be waited for.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from inspect import Parameter, signature
from math import inf
from numbers import Real
from types import UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np
import torch
from annotated_types import Predicate
from torch import Tensor

from reference._validation.types import BoundsTest, OneOf

P = ParamSpec("P")
R = TypeVar("R")
Axes = dict[str, tuple[Any, str]]  # the length of each axis of a call, and who brought it
Check = Callable[[Any, Axes], None]

ABSENT = (None, "")
FLAG = "True or False"
SEVERAL = {tuple: "a tuple", Sequence: "a sequence"}
NUMBERS = {int: ("an integer", (int,)), float: ("a number", (int, float, Real))}
DTYPES = {
    "float32": ("a floating-point", lambda dtype: dtype.is_floating_point),
    "bool": ("a boolean", lambda dtype: dtype == torch.bool),
    "int64": ("an int64", lambda dtype: dtype == torch.int64),
    "int32": ("an int32", lambda dtype: dtype == torch.int32),
    "int16": ("an int16", lambda dtype: dtype == torch.int16),
    "uint8": ("a uint8", lambda dtype: dtype == torch.uint8),
}
BITS = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32}
MANY = 2**15  # below that the views cost more than they save
_trusting = ContextVar("trusting", default=False)


@contextmanager
def trusted() -> Iterator[None]:
    """Leave out, in this thread or task, what looks at the values of tensors."""
    before = _trusting.set(True)
    try:
        yield
    finally:
        _trusting.reset(before)


def scanning(tensor: Tensor) -> bool:
    """Whether the values of a tensor may be looked at, and there are some."""
    if torch.compiler.is_compiling() or _trusting.get() or not tensor.numel():
        return False
    return not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def requires(*rules: Callable[..., None]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add rules to a signature, for what one annotation cannot say.

    A rule's parameters are arguments of the function, or lengths of its axes, by name; what the
    call does not have is None.
    """

    def attach(spec: Callable[P, R]) -> Callable[P, R]:
        vars(spec)["rules"] = rules
        return spec

    return attach


def guarded(door: str, spec: Callable[P, R]) -> Callable[P, R]:
    """Return `spec` behind its contract, as the package `door` offers it."""
    hold = compile_contract(spec)

    @wraps(spec)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        hold(args, kwargs)
        return spec(*args, **kwargs)

    call.__module__ = door  # where pickle finds it
    return call


def compile_contract(spec: Callable[..., Any]) -> Callable[[tuple[Any, ...], dict[str, Any]], None]:
    """Compile a signature into a function that refuses what a call was given."""
    hints, parameters = get_type_hints(spec, include_extras=True), signature(spec).parameters
    names = tuple(n for n, p in parameters.items() if p.kind != Parameter.KEYWORD_ONLY)
    defaults = {n: p.default for n, p in parameters.items() if p.default is not Parameter.empty}
    needed = parameters.keys() - defaults.keys()
    checks = tuple((n, check) for n in parameters if (check := compiled(n, hints[n])))
    rules = tuple((rule, tuple(signature(rule).parameters)) for rule in vars(spec).get("rules", ()))

    def hold(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # one too many: the body says so
        given = dict(zip(names, args), **kwargs) if args else kwargs  # noqa: B905
        if not needed <= given.keys():
            return  # and so it does of one too few
        axes: Axes = {}
        for name, check in checks:
            if name in given:
                check(given[name], axes)
        if rules:
            known = defaults | given
            for rule, wanted in rules:
                rule(*[known[n] if n in known else axes.get(n, ABSENT)[0] for n in wanted])

    return hold


def compiled(name: str, annotation: Any) -> Check | None:
    """Compile what an annotation says of the argument `name`, if it says anything."""
    base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    if choices := next((mark.choices for mark in marks if isinstance(mark, OneOf)), None):
        return partial(choice, name, choices)
    if get_origin(base) is Literal:
        return partial(choice, name, get_args(base))
    if get_origin(base) in (Union, UnionType):
        return _union(name, get_args(base))
    if get_origin(base) in SEVERAL:
        return _several(name, get_origin(base), get_args(base)[0])
    if hasattr(base, "dim_str"):
        return _tensor(name, base)
    if base in NUMBERS:
        return _number(name, base, marks)
    if base is torch.dtype:
        return partial(_dtype, name)
    if base is bool:
        return partial(_flag, name)
    return _record(name, base) if hasattr(base, "_fields") else None


def _union(name: str, members: tuple[Any, ...]) -> Check:
    """Choose by the value: None, a tensor by its rank, a record by its class, or what is left."""
    kinds = [kind for kind in members if kind is not type(None)]
    optional = len(kinds) < len(members)
    checks = [(kind, compiled(name, kind)) for kind in kinds]
    ranks = [(len(kind.dim_str.split()), held) for kind, held in checks if hasattr(kind, "dim_str")]
    others = [(kind, held) for kind, held in checks if not hasattr(kind, "dim_str")]
    records = tuple(kind for kind in kinds if hasattr(kind, "_fields"))
    rest = (others or checks)[0][1]

    def check(value: Any, axes: Axes) -> None:
        if value is None and optional:
            return
        if len(records) > 1 and not isinstance(value, records):
            listed = " or ".join([f"a {kind.__name__}" for kind in records] + ["None"] * optional)
            raise TypeError(f"{name} must be {listed}, got {value!r}")
        if ranks and isinstance(value, Tensor):
            fitting = (held for rank, held in ranks if rank == value.ndim)
            chosen = next(fitting, ranks[-1][1])
        else:
            # compared, not looked up: a `tuple[...]` has no hash while `torch.compile` traces
            chosen = next((held for kind, held in others if type(value) is kind), rest)
        if chosen:
            chosen(value, axes)

    return check


def _several(name: str, many: type, kind: Any) -> Check | None:
    """Hold each member of a tuple or sequence of any length."""
    parts: dict[int, Check | None] = {}

    def check(value: Any, axes: Axes) -> None:
        if not isinstance(value, many) or isinstance(value, str):
            raise TypeError(f"{name} must be {SEVERAL[many]}, got {shown(value)}")
        for place, part in enumerate(value):
            if place not in parts:
                parts[place] = compiled(f"{name}[{place}]", kind)
            if held := parts[place]:
                held(part, axes)

    return check


def choice(name: str, choices: tuple[Any, ...], value: Any, _: Axes) -> None:
    """Refuse what is not among `choices`."""
    # compared only with its like: a list has no hash, and an array no truth
    if not any(type(value) is type(one) and value == one for one in choices):
        listed = ", ".join(repr(one) for one in choices)
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def _flag(name: str, value: Any, _: Axes) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name} must be {FLAG}, got {shown(value)}")


def _dtype(name: str, value: Any, _: Axes) -> None:
    if not isinstance(value, torch.dtype) or not value.is_floating_point:
        raise TypeError(f"{name} must be a floating-point dtype, got {value}")


def _number(name: str, kind: type, marks: Sequence[Any]) -> Check:
    bounds, (word, classes) = BoundsTest.of(marks), NUMBERS[kind]
    rules = [mark.func for mark in marks if isinstance(mark, Predicate)]

    def check(value: Any, _: Axes) -> None:
        if isinstance(value, bool) or not isinstance(value, classes):
            raise TypeError(f"{name} must be {word}, got {shown(value)}")
        if bounds and not bounds.hold(value):
            raise ValueError(f"{name} must be {bounds.said}, got {value}")
        for rule in rules:
            if not rule(value):
                said = rule.__name__.replace("_", " ")
                raise ValueError(f"{name} must be {said}, got {value}")

    return check


def _record(name: str, kind: Any) -> Check:
    """Settings are held to all their fields, a result of ours to its tensors."""
    fields = get_type_hints(kind, include_extras=True)
    result = any(hasattr(annotation, "dim_str") for annotation in fields.values())
    compiled_fields = (
        (place, compiled(f"{name}.{field}", annotation))
        for place, (field, annotation) in enumerate(fields.items())
        if not result or hasattr(annotation, "dim_str")
    )
    checks = tuple((place, held) for place, held in compiled_fields if held)
    rules = tuple((rule, tuple(signature(rule).parameters)) for rule in getattr(kind, "rules", ()))

    def check(value: Any, axes: Axes) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
        try:
            for place, held in checks:
                held(value[place], axes)
            for rule, wanted in rules:
                rule(name, *[getattr(value, field) for field in wanted[1:]])
        except (TypeError, ValueError) as error:
            raise error if result else type(error)(f"{error} in {value!r}") from error

    return check


def _tensor(name: str, annotation: Any) -> Check:
    word, fits = tensor_kind(annotation)
    bounds = BoundsTest.of([getattr(annotation.dtype, "values", None)])
    names, whole = annotation.dim_str.split(), f"[{annotation.dim_str}]"
    star = next((place for place, axis in enumerate(names) if axis[0] == "*"), None)
    least = len(names) - (star is not None)
    places: list[Any] = list(range(len(names)))
    if star is not None:
        after = range(star + 1 - len(names), 0)
        places[star:] = slice(star, after.start or None), *after
    told = tuple((axis, place) for axis, place in zip(names, places, strict=True) if axis != "_")

    def check(value: Any, axes: Axes) -> None:
        if not isinstance(value, Tensor) or not fits(value.dtype):
            raise TypeError(f"{name} must be {word} tensor, got {shown(value)}")
        shape = value.shape
        if axes.get(whole, ABSENT)[0] != shape:
            if len(shape) != least and (star is None or len(shape) < least):
                count = f"{'at least ' * (star is not None)}{least}"
                count += " axis" if least == 1 else " axes"
                raise ValueError(f"{name} must have {count}, got shape {tuple(shape)}")
            for axis, place in told:
                if axis not in axes:
                    axes[axis] = shape[place], name
                elif axes[axis][0] != shape[place]:
                    misfit(axis, shape[place], shape, axes)
            axes[whole] = shape, name
        if bounds:
            within(name, value, bounds)

    def misfit(axis: str, length: Any, shape: tuple[int, ...], axes: Axes) -> None:
        known, other = axes[axis]
        if other == name:
            raise ValueError(f"{name} must be square, got shape {tuple(shape)}")
        if known == 0 and length:
            said = f"{other} must have {axis} of at least 1 to fit {name}"
            raise ValueError(f"{said}, got {known}")
        wanted: list[Any] = [
            axes.get(a, (shape[place],))[0] for a, place in zip(names, places, strict=True)
        ]
        if star is not None:
            wanted[star : star + 1] = wanted[star]
        said = f"{name} must have shape {tuple(wanted)} to fit {other}"
        raise ValueError(f"{said}, got {tuple(shape)}")

    return check


def within(
    name: str, tensor: Tensor, bounds: BoundsTest | None, real: Tensor | None = None
) -> None:
    """Refuse values out of bounds, where they are real."""
    if bounds is None or not scanning(tensor):
        return
    low, high = ends(tensor, bounds.least)  # NaN survives both
    if bounds.hold(low) and bounds.hold(high):
        return
    bad = ~bounds.hold(tensor)
    bad = bad if real is None else bad & real
    if bool(bad.any()):
        raise ValueError(f"{name} must be {bounds.said}, got {tensor[bad][0].item()}")


def ends(tensor: Tensor, least: float = -inf) -> tuple[float, float]:
    """Return the least and the greatest element, with one wait for a GPU; NaN if there is one.

    Numbers of at least 0, as these are expected to be, order as their bits do, which compare
    faster; of others a sign bit tells.
    """
    if tensor.dtype.itemsize == 1 and tensor.is_floating_point():
        tensor = tensor.float()  # eight bits know no order
    if tensor.is_cuda:
        low, high = torch.stack(tensor.aminmax()).tolist()
        return low, high
    if least >= 0 and tensor.numel() >= MANY and tensor.dtype in BITS:
        low, high = tensor.view(BITS[tensor.dtype]).aminmax()
        if low.item() >= 0:
            return low.view(tensor.dtype).item(), high.view(tensor.dtype).item()
    low, high = tensor.aminmax()
    return low.item(), high.item()


def tensor_kind(annotation: Any) -> tuple[str, Callable[[torch.dtype], bool]]:
    """Return how to say what kind of tensor an annotation asks for, and a test of its dtype."""
    dtypes = annotation.dtype.dtypes
    if "int32" in dtypes and "int64" in dtypes:
        return "an integer", lambda dtype: not (dtype.is_floating_point or dtype == torch.bool)
    return next(found for dtype, found in DTYPES.items() if dtype in dtypes)


def shown(value: object) -> str:
    """Say what was given instead of a number or a tensor."""
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else repr(value)
