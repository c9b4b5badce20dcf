"""The names of the axes of a call's arguments, from the annotations of its signature."""

from collections.abc import Iterator
from functools import cache
from inspect import unwrap
from itertools import repeat
from typing import Any, get_args

from torch import Tensor

import reference


def arguments_and_fields(inputs: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield argument name, field name and value; only a record has field names."""
    for key, value in inputs.items():
        fields = getattr(value, "_fields", None)
        yield from zip(repeat(key), fields, value, strict=False) if fields else [(key, "", value)]


def names_of_axes(name: str, key: str, field: str, value: Any) -> list[str]:
    """Return the names of a tensor's axes from the signature, numbering those of `*batch`."""
    words = [*axis_words(name, key, field)] if isinstance(value, Tensor) else []
    if words and words[0].startswith("*"):
        words = [f"{words[0]}{at}" for at in range(value.dim() - len(words) + 1)] + words[1:]
    return words if isinstance(value, Tensor) and len(words) == value.dim() else []


@cache
def axis_words(name: str, key: str, field: str = "") -> tuple[str, ...]:
    """Return the words of the shape annotation of an argument, or of a field of it."""
    hint = unwrap(getattr(reference, name)).__annotations__[key]
    if field:
        kinds = [getattr(part, "__annotations__", {}) for part in (hint, *get_args(hint))]
        hint: Any = next((kind[field] for kind in kinds if field in kind), None)
    shaped = (part.dim_str for part in (hint, *get_args(hint)) if hasattr(part, "dim_str"))
    return tuple(next(shaped, "").split())


def replace_argument(inputs: dict[str, Any], key: str, field: str, value: Any) -> dict[str, Any]:
    """Return inputs with one argument, or one field of a record, replaced."""
    return {**inputs, key: inputs[key]._replace(**{field: value}) if field else value}
