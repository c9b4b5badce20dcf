"""Values as Python source, so that a failing call can be pasted and run."""

from collections.abc import Callable
from functools import lru_cache
from inspect import signature
from math import isfinite
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.record_conversion import RECORDS
from spec_tests.report.calls import count_elements

PLAIN = (torch.float32, torch.int64, torch.bool)
"""The dtypes that `torch.tensor` gives to floats, integers and booleans."""
WHOLE = 64
"""Largest number of elements of a tensor that is shown in full."""
LIMIT = 300
"""Characters of a result beyond which its text is cut."""
INLINE = 60
"""Characters of the arguments beyond which each has a line of its own."""


def snippet(module: str, own: dict[type, type], name: str, inputs: dict[str, Any]) -> str:
    """Return a program that makes one call and prints its result."""
    home, _, attribute = module.partition(":")
    alias = attribute or home
    spec = signature(getattr(reference, name)).parameters
    given = [
        (key, literal(value, alias, own))
        for key, value in inputs.items()
        if spec[key].default is spec[key].empty or not equals_default(value, spec[key].default)
    ]
    inner = ", ".join(f"{key}={text}" for key, text in given)
    if len(inner) > INLINE:
        inner = "".join(f"\n    {key}={text}," for key, text in given) + "\n"
    body = f"print({alias}.{name}({inner}))"
    lines = ["import torch"] if "torch." in body else []
    lines += ["import reference"] if "reference." in body and alias != "reference" else []
    lines += [f"from {home} import {attribute}" if attribute else f"import {home}"]
    return "\n".join(lines) + f"\n\n{body}\n"


def equals_default(value: Any, default: Any) -> bool:
    """Whether an argument equals its default, in type and value."""
    return type(value) is type(default) and not isinstance(value, Tensor) and value == default


def literal(value: Any, alias: str = "reference", own: dict[type, type] | None = None) -> str:
    """Return Python source of `value`; records in `own` are those of the module `alias`."""
    if isinstance(value, Tensor):
        return tensor_literal(value)
    if isinstance(value, tuple | list):
        kind: Any = type(value)
        parts = [literal(part, alias, own) for part in value]
        if kind in RECORDS:
            home = alias if own and kind in own else "reference"
            shown = zip(kind._fields, value, parts, strict=True)
            usual = kind._field_defaults
            fields = ", ".join(
                f"{n}={text}"
                for n, part, text in shown
                if n not in usual or not equals_default(part, usual[n])
            )
            return f"{home}.{kind.__name__}({fields})"
        inner = ", ".join(parts) + "," * (isinstance(value, tuple) and len(parts) == 1)
        return f"({inner})" if isinstance(value, tuple) else f"[{inner}]"
    if isinstance(value, float) and not isfinite(value):
        return f'float("{value}")'
    if callable(value) and getattr(value, "__name__", "") in reference.__all__:
        return f"reference.{value.__name__}"
    return repr(value)


def tensor_literal(value: Tensor) -> str:
    """Return Python source of a tensor, with its dtype, and its strides if not contiguous."""
    if value.layout is not torch.strided:
        return f"{tensor_literal(value.to_dense())}.to_sparse()"
    dtype = "" if value.dtype in PLAIN else f", dtype={value.dtype}"
    if not value.numel():
        return f"torch.zeros({[*value.shape]}, dtype={value.dtype})"
    if not value.is_contiguous():
        span = sum((n - 1) * s for n, s in zip(value.shape, value.stride(), strict=True)) + 1
        start = value.storage_offset()
        memory = value.as_strided([start + span], [1], 0)
        spread = f"{[*value.shape]}, {[*value.stride()]}, {start}"
        return f"torch.tensor({nested_lists(memory)}{dtype}).as_strided({spread})"
    sparse = value.numel() > WHOLE and sparse_literal(value)
    return sparse or f"torch.tensor({nested_lists(value)}{dtype})"


def sparse_literal(value: Tensor) -> str:
    """Return Python source of a tensor with one number in all but a few places; otherwise ""."""
    flat = value.flatten()
    seen, times = flat.unique(return_counts=True)
    most = seen[times.argmax()]
    others = ((flat != most) | (flat.signbit() != most.signbit())).nonzero().flatten()
    if 8 * len(others) > len(flat):
        return ""
    number = number_literal(most.item(), value.dtype)
    made = f"torch.full({[*value.shape]}, {number}, dtype={value.dtype})"
    if not len(others):
        return made
    indices = torch.unravel_index(others, value.shape)
    inner = ", ".join(map(tensor_literal, indices)) + "," * (len(indices) == 1)
    return f"{made}.index_put(({inner}), {tensor_literal(flat[others])})"


def nested_lists(value: Tensor) -> str:
    """Return the elements as nested lists."""
    if value.dim():
        return f"[{', '.join(map(nested_lists, value))}]"
    return number_literal(value.item(), value.dtype)


def number_literal(value: Any, dtype: torch.dtype) -> str:
    """Return the shortest text that reads as `value` at a dtype."""
    return shortest_float(repr(value), dtype) if isinstance(value, float) else repr(value)


@lru_cache(4096)
def shortest_float(exact: str, dtype: torch.dtype) -> str:
    """Return the shortest text of a float from its exact one; −0 keeps its sign."""
    value = float(exact)
    if not isfinite(value):
        return {"inf": "torch.inf", "-inf": "-torch.inf"}.get(exact, "torch.nan")
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    text = next(t for t in texts if torch.tensor(float(t), dtype=dtype).item() == value)
    return text if any(mark in text for mark in ".en") else f"{text}."


def result_as_text(value: Any) -> str:
    """Return a result as text: an exception as its message, a large tensor abbreviated."""
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}".splitlines()[0][:LIMIT]
    text = literal(value) if count_elements(value) <= WHOLE else repr(value)
    return text if len(text) <= LIMIT else f"{text[:LIMIT]} …"


def first_difference(
    expected: Any, actual: Any, equal: Callable[[Any, Any], bool]
) -> tuple[str, Any, Any]:
    """Return the path of the first part in which two results differ, and its two values.

    In a tensor that is not shown in full it is the element with the largest difference.
    """
    several = [isinstance(value, tuple | list) for value in (expected, actual)]
    if all(several) and len(expected) == len(actual):
        names = getattr(expected, "_fields", None)
        for index, (right, wrong) in enumerate(zip(expected, actual, strict=True)):
            if not equal(right, wrong):
                path, right, wrong = first_difference(right, wrong, equal)
                return (f".{names[index]}" if names else f"[{index}]") + path, right, wrong
    if not (isinstance(expected, Tensor) and isinstance(actual, Tensor)):
        return "", expected, actual
    cut = any(len(result_as_text(value)) > LIMIT for value in (expected, actual))
    if expected.shape == actual.shape and (expected.numel() > WHOLE or cut):
        apart = (expected.double() - actual.double()).abs().nan_to_num(torch.inf, posinf=torch.inf)
        apart[expected.isnan() & actual.isnan() | (expected == actual)] = 0
        indices = [int(index) for index in torch.unravel_index(apart.argmax(), apart.shape)]
        return str(indices), expected[tuple(indices)], actual[tuple(indices)]
    return "", expected, actual
