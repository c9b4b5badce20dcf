"""Derive test inputs from a signature: bad arguments, and strategies for flags and words."""

from collections.abc import Callable, Iterator
from functools import cache
from inspect import unwrap
from math import inf, nan
from typing import Any, get_origin, get_type_hints

import torch
from annotated_types import GroupedMetadata
from hypothesis import strategies as st
from torch import Tensor

from reference.contract.enforce import FLAG, NUMBERS, SEVERAL, tensor_kind
from reference.contract.types import BoundsTest, choices_of, members
from spec_tests.strategies import Refusal, last_element_replacer, longer


@cache
def draw_choices(spec: Callable[..., Any], *but: str) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for the flags and words of a function or settings, except `but`."""
    listed = choices(spec)
    return st.fixed_dictionaries({n: st.sampled_from(w) for n, w in listed.items() if n not in but})


def choices(spec: Callable[..., Any]) -> dict[str, list[Any]]:
    """Return the flags and words of a function or settings, each with its values."""
    listed = {
        name: [False, True] if base is bool else choices_of(base, marks)
        for name, annotation in get_type_hints(unwrap(spec), include_extras=True).items()
        for base, marks in members(annotation)
        if name != "return"
    }
    return {name: list(words) for name, words in listed.items() if words}


def refusals(spec: Callable[..., Any], good: dict[str, Any]) -> Iterator[Refusal]:
    """Yield, for each argument of a valid call, bad values that its annotation excludes."""
    axes: set[str] = set()
    for name, annotation in get_type_hints(unwrap(spec), include_extras=True).items():
        if name == "return":
            continue
        several = sum(1 for _ in members(annotation)) > 1
        for base, marks in members(annotation):
            if listed := choices_of(base, marks):
                yield Refusal(name, "nonsense", ValueError, repr(listed[-1]))
            elif hasattr(base, "dim_str"):
                if isinstance(good.get(name), Tensor):
                    yield from _tensor(name, base, axes, several)
            elif base in NUMBERS:
                if not several:
                    yield from _number(name, base, marks)
            elif base is bool:
                yield Refusal(name, "no", TypeError, FLAG)
            elif base is torch.dtype:
                yield Refusal(name, torch.int64, TypeError, "floating-point dtype")
            elif get_origin(base) in SEVERAL:
                yield Refusal(name, 3, TypeError, SEVERAL[get_origin(base)])
            elif hasattr(base, "_fields"):
                yield Refusal(name, 3, TypeError, base.__name__)
                if isinstance(good.get(name), base):
                    yield from _settings(name, base, good[name])


def _tensor(name: str, annotation: Any, axes: set[str], several: bool) -> Iterator[Refusal]:
    kinds, names = annotation.dtype.dtypes, annotation.dim_str.split()
    word = tensor_kind(annotation)[0]
    other = torch.int64 if "bool" in kinds else torch.bool
    yield Refusal(name, lambda t: t.to(other), TypeError, word)
    if not several:
        yield Refusal(name, 3.5, TypeError, word)
    least = sum(axis[0] != "*" for axis in names)
    if least:
        flat = [1] * (least - 1)
        yield Refusal(name, lambda t: t.flatten()[:1].reshape(flat), ValueError, "ax")
    if names and names[-1] in axes and names[-1] not in ("width", "_"):
        yield Refusal(name, longer, ValueError, "shape")
    axes |= set(names)
    if bounds := BoundsTest.of([getattr(annotation.dtype, "values", None)]):
        for bad in (nan, inf, -inf, -1.0) if "float32" in kinds else (-1,):
            if not bounds.hold(bad):
                yield Refusal(name, last_element_replacer(bad), ValueError, bounds.said)


def _number(name: str, kind: type, marks: list[Any]) -> Iterator[Refusal]:
    for bad in ("0.5", True, torch.tensor(0.5), *([1.5] if kind is int else [])):
        yield Refusal(name, bad, TypeError, NUMBERS[kind][0])
    if bounds := BoundsTest.of(marks):
        for bad in outside(kind, marks):
            if not bounds.hold(bad):
                yield Refusal(name, bad, ValueError, bounds.said)


def outside(kind: type, marks: list[Any]) -> Iterator[Any]:
    """Yield the ends of a range and the numbers next to them; for a float also NaN and infinity."""
    for mark in marks:
        for m in mark if isinstance(mark, GroupedMetadata) else [mark]:
            ends = [getattr(m, e) for e in ("gt", "ge", "lt", "le") if hasattr(m, e)]
            for end in ends:
                yield from [end] if abs(end) == inf else [kind(end - 1), kind(end), kind(end + 1)]
    if kind is float:
        yield from (nan, inf)


def _settings(name: str, kind: Any, good: Any) -> Iterator[Refusal]:
    if any(hasattr(hint, "dim_str") for hint in get_type_hints(kind).values()):
        return
    for field, annotation in get_type_hints(kind, include_extras=True).items():

        def settings() -> None: ...

        settings.__annotations__ = {field: annotation}
        for bad in refusals(settings, {field: getattr(good, field)}):
            yield Refusal(name, good._replace(**{field: bad.change}), bad.error, bad.says)
