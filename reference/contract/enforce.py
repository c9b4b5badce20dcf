"""Compile signatures into checks of the arguments.

Only the packages check: `reference.f` and `optimized.f` both check calls against the signature of
`reference.f`. Modules inside a package call each other without checks, so that a call is checked
once.

Types, shapes and numbers are always checked. Checks of a tensor's values are skipped in three
cases: while `torch.compile` traces, because a graph cannot branch on data; while a CUDA graph is
captured; and within `trusted()`, which avoids waiting for a GPU.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from fractions import Fraction
from functools import partial, wraps
from inspect import Parameter, signature
from math import inf, isfinite
from numbers import Integral, Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from annotated_types import Predicate
from torch import Tensor

from reference.contract.types import BoundsTest, choices_of, split_annotation

P = ParamSpec("P")
R = TypeVar("R")
Call = tuple[tuple[Any, ...], dict[str, Any]]  # the positional and the named arguments
Axes = dict[str, tuple[Any, str]]  # the length of each axis of a call, and the argument that has it
Check = Callable[[Any, Axes], None]

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
INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
PLAIN = {int, float, bool, str, type(None), torch.dtype, Tensor}
"""Types of arguments that are taken as they are; other numbers become those of Python."""
SHARES = {"ratio", "fraction", "density", "heavy", "depth"}
"""Arguments of which counts are made."""
_trusting = ContextVar("trusting", default=False)


@contextmanager
def trusted() -> Iterator[None]:
    """Skip checks of tensor values, in this thread or task."""
    before = _trusting.set(True)
    try:
        yield
    finally:
        _trusting.reset(before)


def may_read_values(tensor: Tensor) -> bool:
    """Whether checks may read the values of a tensor, and it has any."""
    return has_known_values(tensor) and not _trusting.get()


def may_branch_on_values(tensor: Tensor) -> bool:
    """Whether a body may choose its way by the values of a tensor, and it has any.

    It may on a CPU within `trusted()` too, where nothing waits for them.
    """
    return has_known_values(tensor) and has_memory(tensor)


def has_memory(tensor: Tensor) -> bool:
    """Whether a tensor's memory can be read: not within `torch.func.vmap` or `FakeTensorMode`."""
    if torch.compiler.is_compiling():
        return True
    if type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__:  # pyright: ignore
        return False
    try:
        tensor.detach().data_ptr()  # a transform wraps what it returns
    except RuntimeError:
        return False
    return True


def has_known_values(tensor: Tensor) -> bool:
    """Whether a tensor has values, and reading them neither breaks a graph nor waits for a GPU."""
    if torch.compiler.is_compiling() or not tensor.numel():
        return False
    return not tensor.is_cuda or not (_trusting.get() or torch.cuda.is_current_stream_capturing())


def requires(*rules: Callable[..., None]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Add rules to a signature, for conditions that one annotation cannot express.

    A rule's parameters are names of arguments or of axes, whose lengths it receives. A name that
    the call does not have is None.
    """

    def attach(spec: Callable[P, R]) -> Callable[P, R]:
        vars(spec)["rules"] = rules
        return spec

    return attach


def enforce_contract(door: str, spec: Callable[P, R]) -> Callable[P, R]:
    """Return `spec` with argument checks, as a function of the package `door`."""
    hold = compile_contract(spec)

    @wraps(spec)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        args, kwargs = hold(args, kwargs)  # pyright: ignore[reportAssignmentType]
        return spec(*args, **kwargs)

    call.__module__ = door  # pickle looks for the function there
    return call


def compile_contract(
    spec: Callable[..., Any], unread: Collection[str] = ()
) -> Callable[[tuple[Any, ...], dict[str, Any]], Call]:
    """Compile a signature into a function that checks the arguments of a call.

    It returns them, with NumPy's scalars, fractions and the like as numbers of Python.

    Args:
        spec: the function, with its rules.
        unread: the tensors whose values are not checked here: the body does.
    """
    hints, parameters = get_type_hints(spec, include_extras=True), signature(spec).parameters
    names = tuple(n for n, p in parameters.items() if p.kind != Parameter.KEYWORD_ONLY)
    defaults = {n: p.default for n, p in parameters.items() if p.default is not Parameter.empty}
    needed = parameters.keys() - defaults.keys()
    checks = [(n, compiled(n, hints[n])) for n in parameters]
    checks = [(n, without_values(check) if n in unread else check) for n, check in checks]
    rules = [(rule, tuple(signature(rule).parameters)) for rule in vars(spec).get("rules", ())]

    def hold(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        # with an argument too many Python raises the error
        given = dict(zip(names, args), **kwargs) if args else kwargs  # noqa: B905
        if not given.keys() >= needed:
            return args, kwargs  # with an argument too few as well
        axes: Axes = {}
        for name, check in checks:
            if name in given:
                check(given[name], axes)
        if rules:
            values = {axis: length for axis, (length, _) in axes.items()} | defaults | given
            for rule, wanted in rules:
                rule(*[values.get(n) for n in wanted])
        named = {name: plain(value, name) for name, value in kwargs.items()}
        return tuple(map(plain, args, names)) + args[len(names) :], named

    return hold


def plain(value: Any, name: str = "") -> Any:
    """Return a number, or a record of settings, with numbers of Python alone.

    A fraction of which counts are made stays exact.
    """
    if type(value) in PLAIN:
        return value
    if hasattr(value, "_make"):
        kinds = {*map(type, value)}
        settings = Tensor not in kinds and not kinds <= PLAIN
        return value._make(map(plain, value, value._fields)) if settings else value
    if isinstance(value, np.floating):
        return float(str(value))  # a ratio is the decimal number that it prints as
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Integral):
        return int(value)
    exact = isinstance(value, Fraction) and name in SHARES
    return float(value) if isinstance(value, Real) and not exact else value


def without_values(check: Check) -> Check:
    """Return a check of everything but a tensor's values."""

    def trusting(value: Any, axes: Axes) -> None:
        if torch.compiler.is_compiling():  # which reads none anyway, and cannot trace the other way
            return check(value, axes)
        before = _trusting.set(True)
        try:
            return check(value, axes)
        finally:
            _trusting.reset(before)

    return trusting


def compiled(name: str, annotation: Any) -> Check:
    """Return the check of the argument `name` that an annotation describes."""
    base, marks = split_annotation(annotation)
    if choices := choices_of(base, marks):
        return partial(choice, name, choices)
    if get_origin(base) in (Union, UnionType):
        return _union(name, get_args(base))
    if get_origin(base) in SEVERAL:
        return _several(name, get_origin(base), get_args(base)[0])
    if hasattr(base, "dim_str"):
        return _tensor(name, base, marks)
    if base in NUMBERS:
        return _number(name, base, marks)
    if base is torch.dtype:
        return partial(_dtype, name)
    if base is bool:
        return partial(_flag, name)
    return _record(name, base) if hasattr(base, "_fields") else _anything


def _union(name: str, members: tuple[Any, ...]) -> Check:
    """Return a check that depends on the value: None, tensor rank, record class, or the rest."""
    kinds = [kind for kind in members if kind is not type(None)]
    optional = len(kinds) < len(members)
    checks = [(kind, compiled(name, kind)) for kind in kinds]
    ranks = [(len(kind.dim_str.split()), test) for kind, test in checks if hasattr(kind, "dim_str")]
    others = [(kind, test) for kind, test in checks if not hasattr(kind, "dim_str")]
    records = tuple(kind for kind in kinds if hasattr(kind, "_fields"))
    rest = (others or checks)[0][1]

    def check(value: Any, axes: Axes) -> None:
        if value is None and optional:
            return
        if len(records) > 1 and not isinstance(value, records):
            listed = " or ".join([f"a {kind.__name__}" for kind in records] + ["None"] * optional)
            raise TypeError(f"{name} must be {listed}, got {value!r}")
        if ranks and isinstance(value, Tensor):
            fitting = (test for rank, test in ranks if rank == value.ndim)
            chosen = next(fitting, ranks[-1][1])
        else:
            # compared, not looked up: `tuple[...]` cannot be hashed while `torch.compile` traces
            chosen = next((test for kind, test in others if type(value) is kind), rest)
        chosen(value, axes)

    return check


def _several(name: str, many: type, kind: Any) -> Check:
    """Return the check of each member of a tuple or sequence of any length."""
    parts: list[Check] = []

    def check(value: Any, axes: Axes) -> None:
        if not isinstance(value, many) or isinstance(value, str):
            raise TypeError(f"{name} must be {SEVERAL[many]}, got {shown(value)}")
        for index, part in enumerate(value):
            if index == len(parts):
                parts.append(compiled(f"{name}[{index}]", kind))
            parts[index](part, axes)

    return check


def choice(name: str, choices: tuple[Any, ...], value: Any, _: Axes) -> None:
    """Refuse a value that is not among `choices`."""
    # compare equal types only: a list has no hash, and an array has no truth value
    if not any(type(value) is type(allowed) and value == allowed for allowed in choices):
        listed = ", ".join(map(repr, choices))
        raise ValueError(f"{name} must be one of {listed}, got {value!r}")


def _anything(value: Any, _: Axes) -> None:
    """Admit every value: only the function's body knows the type."""


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
    """Return the check of a record: of all fields of settings, of the tensors of a result."""
    fields = get_type_hints(kind, include_extras=True)
    result = any(hasattr(annotation, "dim_str") for annotation in fields.values())
    checks = [
        (field, compiled(f"{name}.{field}", annotation))
        for field, annotation in fields.items()
        if not result or hasattr(annotation, "dim_str")
    ]
    rules = [(rule, tuple(signature(rule).parameters)[1:]) for rule in getattr(kind, "rules", ())]

    def check(value: Any, axes: Axes) -> None:
        if not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, got {value!r}")
        try:
            for field, test in checks:
                test(getattr(value, field), axes)
            for rule, wanted in rules:
                rule(name, *[getattr(value, field) for field in wanted])
        except (TypeError, ValueError) as error:
            raise error if result else type(error)(f"{error} in {value!r}") from error

    return check


def _tensor(name: str, annotation: Any, marks: Sequence[Any]) -> Check:
    (word, fits), bounds = tensor_kind(annotation), BoundsTest.of(marks)
    names = annotation.dim_str.split()
    star = next((index for index, axis in enumerate(names) if axis[0] == "*"), None)
    least = len(names) - (star is not None)

    def lengths(shape: tuple[int, ...]) -> Sequence[Any]:
        """Return the length of each named axis; of the starred one, all lengths."""
        if star is None:
            return shape
        rest = star + len(shape) - least
        return *shape[:star], shape[star:rest], *shape[rest:]

    def check(value: Any, axes: Axes) -> None:
        if not isinstance(value, Tensor) or not fits(value.dtype):
            raise TypeError(f"{name} must be {word} tensor, got {shown(value)}")
        shape = tuple(value.shape)
        if len(shape) != least and (star is None or len(shape) < least):
            count = f"{'at least ' * (star is not None)}{least}"
            count += " axis" if least == 1 else " axes"
            raise ValueError(f"{name} must have {count}, got shape {shape}")
        for axis, length in zip(names, lengths(shape), strict=True):
            if axis not in axes:
                axes[axis] = length, name
            elif axes[axis][0] != length and axis != "_":
                misfit(axis, length, shape, axes)
        within(name, value, bounds)

    def misfit(axis: str, length: Any, shape: tuple[int, ...], axes: Axes) -> None:
        expected, other = axes[axis]
        if other == name:
            raise ValueError(f"{name} must be square, got shape {shape}")
        if expected == 0 and length:
            said = f"{other} must have {axis} of at least 1 to fit {name}"
            raise ValueError(f"{said}, got {expected}")
        wanted: list[Any] = []
        for other_axis, own in zip(names, lengths(shape), strict=True):
            length = axes.get(other_axis, (own,))[0]
            wanted += length if other_axis[0] == "*" else [length]
        raise ValueError(f"{name} must have shape {tuple(wanted)} to fit {other}, got {shape}")

    return check


def within(
    name: str, tensor: Tensor, bounds: BoundsTest | None, real: Tensor | None = None
) -> None:
    """Refuse values out of bounds; `real` masks the values that count."""
    if bounds is None or not may_read_values(tensor) or surely_within(tensor, bounds):
        return
    low, high = ends(tensor)
    if bounds.hold(low) and bounds.hold(high):
        return
    bad = ~bounds.hold(tensor)
    bad = bad if real is None else bad & real
    if bool(bad.any()):
        raise ValueError(f"{name} must be {bounds.said}, got {tensor[bad][0].item()}")


def surely_within(tensor: Tensor, bounds: BoundsTest) -> bool:
    """Whether the cheapest pass over a CPU's floats shows them within bounds; False shows nothing.

    A sum is finite only if all its terms are. Without a sign bit, floats order like the integers
    with the same bits.
    """
    if not tensor.is_cpu or not tensor.is_floating_point() or bounds.high < inf:
        return False
    if bounds.low < 0:
        return isfinite(tensor.sum().item())
    if tensor.numel() < 1 << 14:  # the check of both ends is as fast
        return False
    bits = tensor.detach().view(INTEGERS[tensor.itemsize])
    if not tensor.is_contiguous():  # which `aminmax` copies
        return bits.amin().item() >= 0 and isfinite(tensor.sum().item())
    low, high = bits.aminmax()
    return low.item() >= 0 and high.view(tensor.dtype).item() < inf


def any_true(mask: Tensor) -> bool:
    """Whether a mask is true somewhere; `Tensor.any` takes 40 times as long on a CPU."""
    return bool(mask.numel()) and bool(mask.view(torch.uint8).amax())


def ends(tensor: Tensor) -> tuple[float, float]:
    """Return the least and the greatest element, with one wait for a GPU; NaN if any is NaN."""
    low, high = tensor.aminmax()
    if tensor.is_cuda:
        low, high = torch.stack([low, high]).cpu()
    return low.item(), high.item()


def tensor_kind(annotation: Any) -> tuple[str, Callable[[torch.dtype], bool]]:
    """Return the kind of tensor that an annotation names, as text, and a test of its dtype."""
    dtypes = annotation.dtype.dtypes
    if "int32" in dtypes and "int64" in dtypes:
        return "an integer", lambda dtype: not (dtype.is_floating_point or dtype == torch.bool)
    return next(found for dtype, found in DTYPES.items() if dtype in dtypes)


def shown(value: object) -> str:
    """Return the text for a wrong value: a tensor's dtype, or the value."""
    return f"a {value.dtype} tensor" if isinstance(value, Tensor) else repr(value)
