"""Tensors, records and numbers as JSON values, in worked vectors and over a pipe.

A list is a tensor of float64, int64 or bool, depending on its elements; "inf", "-inf" and "nan" are
numbers. `{"float32": [...]}` is a tensor of that dtype, and `{"int64": 4}` one without axes.
`{"shape": [2, 0], "of": "float32"}` is an empty tensor; `float` and `int` mean 64 bits there.
`{"base64": "...", "shape": [2, 3], "of": "bfloat16"}` is any tensor, exactly: its elements in row
order, little-endian, one byte for each bool. `{"tuple": [...]}` is a tuple of values, and
`{"Scored": {...}}` a public named tuple with those fields. A dtype is its name, such as "float16".
"""

import base64
import json
from collections.abc import Callable
from numbers import Real
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor

import reference
from spec_tests.record_conversion import (
    RECORDS,
    element_annotations,
    field_names,
    fields_of,
    records_of,
)

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
    )
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
SHORT = {"float": torch.float64, "int": torch.int64}
RECORD_NAMES = {record.__name__ for record in RECORDS}
WORDS = {"inf", "-inf", "nan"}


class NotExpressible(Exception):
    """A value that JSON cannot express."""


def read(value: Any) -> Any:
    """Return the tensor, tuple, record or number of a JSON value."""
    if isinstance(value, list):
        return read_list(value)
    if isinstance(value, str):
        return float(value) if value in WORDS else DTYPES.get(value, value)
    if not isinstance(value, dict):
        return value
    if "base64" in value:
        raw = bytearray(base64.b64decode(value["base64"], validate=True))
        if raw:
            return torch.frombuffer(raw, dtype=DTYPES[value["of"]]).reshape(value["shape"])
    if "shape" in value:
        if 0 not in value["shape"]:
            raise ValueError(f"shape must have a 0 where it is empty, got {value['shape']}")
        return torch.zeros(value["shape"], dtype=(DTYPES | SHORT)[value["of"]])
    if "tuple" in value:
        return tuple(read(part) for part in value["tuple"])
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name in DTYPES:
            return read_list(inner, DTYPES[name])
        if name in RECORD_NAMES:
            return getattr(reference, name)(**read(inner))
    return {name: read(part) for name, part in value.items()}


def read_list(value: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return nested lists as a tensor, of the given dtype or of the dtype of the elements.

    Raises:
        ValueError: lists of one level have different lengths, or an element is not of the dtype.
    """
    kinds = set[type]()

    def number(leaf: Any) -> Any:
        found = float(leaf) if leaf in WORDS else leaf
        kinds.add(type(found))
        return found

    numbers = nested(number, value)
    if dtype is None:
        dtype = torch.float64 if float in kinds else torch.bool if bool in kinds else torch.int64
    fitting = {float, int} if dtype.is_floating_point else {bool if dtype == torch.bool else int}
    if not kinds <= fitting:
        raise ValueError(f"elements must be of {NAMES[dtype]}, got {value!r}")
    found = torch.tensor(numbers, dtype=torch.int64 if fitting == {int} else dtype)
    if fitting == {int} and not torch.equal(found, found.to(dtype).long()):
        raise ValueError(f"elements must be in the range of {NAMES[dtype]}, got {value!r}")
    return found.to(dtype)


def nested(change: Callable[[Any], Any], value: Any) -> Any:
    """Return nested lists with each element changed."""
    return [nested(change, part) for part in value] if isinstance(value, list) else change(value)


def written(value: Any, exact: bool) -> Any:
    """Return a value as JSON: tensors as base64 if `exact`, else as lists with their dtype.

    Raises:
        NotExpressible: JSON has no form for the value, such as for a function.
    """
    if isinstance(value, Tensor):
        return written_tensor(value, exact)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Real | np.generic):
        plain = value.item() if isinstance(value, np.generic) else float(value)
        return plain if abs(plain) < torch.inf else str(plain)
    if isinstance(value, torch.dtype) and value in NAMES:
        return NAMES[value]
    if isinstance(value, tuple | list):
        if type(value) in RECORDS:
            parts = fields_of(value).items()
            return {type(value).__name__: {name: written(part, exact) for name, part in parts}}
        return {"tuple": [written(part, exact) for part in value]}
    raise NotExpressible(f"JSON has no {type(value).__name__}")


def as_lines(values: list[Any]) -> str:
    """Return a list as JSON, an element on each line."""
    return (
        "[\n" + ",\n".join(json.dumps(value, separators=(",", ":")) for value in values) + "\n]\n"
    )


def written_tensor(tensor: Tensor, exact: bool) -> Any:
    """Return a tensor as JSON."""
    if tensor.dtype not in NAMES or tensor.layout is not torch.strided:
        raise NotExpressible(f"JSON has no {tensor.dtype} tensor of this layout")
    name, plain = NAMES[tensor.dtype], tensor.detach().cpu()
    if exact:
        rows = plain.clone(memory_format=torch.contiguous_format)  # also for empty axes
        raw = rows.reshape(-1).view(torch.uint8).numpy().tobytes()
        text = base64.b64encode(raw).decode()
        return {"base64": text, "shape": [*tensor.shape], "of": name}
    if not tensor.numel():
        return {"shape": [*tensor.shape], "of": name}
    return {name: nested(lambda leaf: written(leaf, exact), plain.tolist())}


def integers_as_annotated_floats(value: Any, hint: Any) -> Any:
    """Return a result with integers as floats where `hint` says float, in its records too.

    JSON has one type of number: a program may write 3 for 3.0.
    """
    if type(value) is int and hint is float:
        return float(value)
    kind: Any = type(value)
    if kind in records_of(hint):
        hints = get_type_hints(kind)
        return kind(
            *(
                integers_as_annotated_floats(getattr(value, name), hints[name])
                for name in field_names(value)
            )
        )
    if type(value) is tuple and (hints := element_annotations(hint, len(value))):
        return tuple(map(integers_as_annotated_floats, value, hints))
    return value
