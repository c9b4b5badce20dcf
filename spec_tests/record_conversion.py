"""Convert another module's settings, results and caches to and from the specification's records."""

from dataclasses import fields, is_dataclass
from functools import cache
from inspect import unwrap
from typing import Any, get_args, get_origin, get_type_hints

from torch import Tensor

import reference

ADDED = {
    "HexConfig": {"value_bits": None},
    "HexAttention": {"log_sum_exp": None},
    "hex_attention": {"log_sum_exp": False},
    "ragged_attention": {"log_sum_exp": False},
}
"""Fields and parameters of our extensions, with their defaults: those of a module may lack them."""
Own = dict[type, type]  # the module's type for each record of the specification


def is_record(name: str) -> bool:
    """Whether a public name is a named tuple: settings, a result, or a cache."""
    return hasattr(getattr(reference, name), "_fields")


RECORDS = tuple(getattr(reference, name) for name in reference.__all__ if is_record(name))


def fields_of(record: Any) -> dict[str, Any]:
    """Return the fields of a record; those of an extension only where they have another value."""
    named = dict(zip(field_names(record), record, strict=True))
    added = ADDED.get(type(record).__name__, {})
    return {n: value for n, value in named.items() if n not in added or value != added[n]}


def is_extended(value: Any) -> bool:
    """Whether a record in nested tuples and dictionaries sets a field of an extension."""
    if isinstance(value, dict):
        return any(map(is_extended, value.values()))
    if not isinstance(value, tuple | list):
        return False
    added = ADDED.get(type(value).__name__, {})
    set_here = any(getattr(value, name) != default for name, default in added.items())
    return set_here or any(map(is_extended, value))


def own_records(module: Any) -> Own:
    """Return the module's own types that have the name of a record, by that record."""
    own = {record: getattr(module, record.__name__, record) for record in RECORDS}
    return {record: kind for record, kind in own.items() if kind is not record}


def to_module_records(value: Any, own: Own) -> Any:
    """Return `value` as an argument of a module: nested records become the module's own types.

    Objects of other types, such as a list with attributes, stay as they are.
    """
    if type(value) is list:
        return [to_module_records(part, own) for part in value]
    if type(value) is dict:
        return {name: to_module_records(part, own) for name, part in value.items()}
    if type(value) is not tuple and type(value) not in RECORDS:
        return value
    if type(value) is tuple:
        return tuple(to_module_records(part, own) for part in value)
    kind: Any = own.get(type(value), type(value))
    return kind(**{n: to_module_records(part, own) for n, part in fields_of(value).items()})


def from_module_records(value: Any, hint: Any, own: Own) -> Any:
    """Return a module's result as `hint` annotates it: a type of equal fields becomes the record.

    Anything else stays as it is, and the tests judge it.
    """
    for record in records_of(hint):
        every, added = record._fields, ADDED.get(record.__name__, {})
        needed = tuple(field for field in every if field not in added)  # the first ones
        plain = type(value) is tuple and len(value) in (len(every), len(needed))
        if plain or own.get(record) is type(value) or field_names(value) in (every, needed):
            hints = get_type_hints(record)
            there = [field for field in every if field in needed or hasattr(value, field)]
            parts = value if plain else (getattr(value, field) for field in there)
            named = zip(every if plain else there, parts, strict=False)
            return record(*(from_module_records(part, hints[f], own) for f, part in named))
    if isinstance(value, Tensor):
        return value.item() if hint in (int, float, bool) and not value.dim() else value
    if type(value) in (tuple, list) and (hints := element_annotations(hint, len(value))):
        return type(value)(
            from_module_records(p, h, own) for p, h in zip(value, hints, strict=True)
        )
    return value


@cache
def hints_of(name: str) -> dict[str, Any]:
    """Return the annotations of a public function, without their marks."""
    return get_type_hints(unwrap(getattr(reference, name)))


@cache
def records_of(hint: Any) -> tuple[Any, ...]:
    """Return the records that an annotation admits."""
    kinds = () if get_origin(hint) in (tuple, list) else (hint, *get_args(hint))
    return tuple(kind for kind in kinds if kind in RECORDS)


def field_names(value: Any) -> tuple[str, ...]:
    """Return the field names of a named tuple or data class, or no names."""
    named = tuple(field.name for field in fields(value)) if is_dataclass(value) else ()
    return tuple(getattr(value, "_fields", named))


def element_annotations(hint: Any, count: int) -> list[Any]:
    """Return the annotation of each of `count` elements, or an empty list without annotations."""
    for kind in (hint, *get_args(hint)):
        inner = get_args(kind)
        if get_origin(kind) in (tuple, list) and inner:
            several = get_origin(kind) is list or inner[-1] is Ellipsis
            return [inner[0]] * count if several else [*inner] if len(inner) == count else []
    return []
