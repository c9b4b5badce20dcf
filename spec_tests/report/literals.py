"""Values as Python that makes them again, so that a failing call can be pasted and run."""

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from math import isfinite
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.records import RECORDS

PLAIN = (torch.float32, torch.int64, torch.bool)
"""The dtypes that `torch.tensor` gives to floats, integers and flags."""
INLINE = 60
"""Characters of an argument beyond which it has a line of its own."""


def snippet(module: str, own: dict[type, type], name: str, inputs: dict[str, Any]) -> str:
    """Return a program that makes one call and prints its result."""
    place, _, attribute = module.partition(":")
    alias = attribute or place
    spec = signature(getattr(reference, name)).parameters
    given = [
        (key, literal(value, alias, own))
        for key, value in inputs.items()
        if spec[key].default is spec[key].empty or not same(value, spec[key].default)
    ]
    inner = ", ".join(f"{key}={text}" for key, text in given)
    if len(inner) > INLINE:
        inner = "".join(f"\n    {key}={text}," for key, text in given) + "\n"
    body = f"print({alias}.{name}({inner}))"
    lines = ["import torch"] if "torch." in body else []
    lines += ["import reference"] if "reference." in body and alias != "reference" else []
    lines += [f"from {place} import {attribute}" if attribute else f"import {place}"]
    return "\n".join(lines) + f"\n\n{body}\n"


def same(value: Any, default: Any) -> bool:
    """Whether an argument is what its default is."""
    return type(value) is type(default) and not isinstance(value, Tensor) and value == default


def literal(value: Any, alias: str = "reference", own: dict[type, type] | None = None) -> str:
    """Return Python that makes `value`; records are those of the module `alias`, if its own."""
    if isinstance(value, Tensor):
        return tensor(value)
    if isinstance(value, tuple | list):
        kind: Any = type(value)
        parts = [literal(part, alias, own) for part in value]
        if kind in RECORDS:
            home = alias if own and kind in own else "reference"
            shown = zip(kind._fields, value, parts, strict=True)
            fields = ", ".join(f"{n}={text}" for n, part, text in shown if not left(value, n, part))
            return f"{home}.{kind.__name__}({fields})"
        inner = ", ".join(parts) + "," * (isinstance(value, tuple) and len(parts) == 1)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    if callable(value) and getattr(value, "__name__", "") in reference.__all__:
        return f"reference.{value.__name__}"
    return repr(value)


def left(record: Any, field: str, value: Any) -> bool:
    """Whether a field has its default, and need not be said."""
    return field in record._field_defaults and same(value, record._field_defaults[field])


def tensor(value: Tensor) -> str:
    """Return Python that makes a tensor, with its dtype and, if it is spread, its strides."""
    dtype = "" if value.dtype in PLAIN else f", dtype={value.dtype}"
    if not value.numel():
        return f"torch.zeros({[*value.shape]}, dtype={value.dtype})"
    if not value.is_contiguous():
        span = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
        start = value.storage_offset()
        memory = value.as_strided([start + span], [1], 0)
        spread = f"{[*value.shape]}, {[*value.stride()]}, {start}"
        return f"torch.tensor({numbers(memory)}{dtype}).as_strided({spread})"
    return f"torch.tensor({numbers(value)}{dtype})"


def numbers(value: Tensor) -> str:
    """Return the elements as nested lists."""
    if value.dim():
        return f"[{', '.join(map(numbers, value))}]"
    return number(value.item(), value.dtype)


@lru_cache(4096)
def number(value: Any, dtype: torch.dtype) -> str:
    """Return the shortest text that reads as `value` at a dtype."""
    if not isinstance(value, float):
        return repr(value)
    if not isfinite(value):
        return {"inf": "torch.inf", "-inf": "-torch.inf"}.get(repr(value), "torch.nan")
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    text = next(t for t in texts if torch.tensor(float(t), dtype=dtype).item() == value)
    return text if any(mark in text for mark in ".en") else f"{text}."


def shown(value: Any, limit: int = 300) -> str:
    """Return a result for reading: an exception in its words, a large tensor cut short."""
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}".splitlines()[0][:limit]
    text = literal(value) if size(value) <= 64 else repr(value)
    return text if len(text) <= limit else f"{text[:limit]} …"


def size(value: Any) -> int:
    """Count the elements of the tensors in nested tuples."""
    if isinstance(value, tuple | list):
        return sum(map(size, value))
    return value.numel() if isinstance(value, Tensor) else 0


def differing(
    expected: Any, actual: Any, equal: Callable[[Any, Any], bool]
) -> tuple[str, Any, Any]:
    """Return the first field in which two results differ, by its path, and what stands there."""
    if isinstance(expected, tuple) and isinstance(actual, tuple) and len(expected) == len(actual):
        names = getattr(expected, "_fields", None)
        for at, (one, other) in enumerate(zip(expected, actual, strict=True)):
            if not equal(one, other):
                path, inner, theirs = differing(one, other, equal)
                return (f".{names[at]}" if names else f"[{at}]") + path, inner, theirs
    return "", expected, actual
