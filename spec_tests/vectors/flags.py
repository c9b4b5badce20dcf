"""Flags of a vector: the special properties of its inputs. docs/flags.md says why each matters."""

import re
from collections.abc import Callable, Iterator
from inspect import getdoc, unwrap
from typing import Any

from torch import Tensor

import reference
from spec_tests.record_conversion import RECORDS
from spec_tests.report.axis_names import arguments_and_fields, names_of_axes
from spec_tests.report.calls import tensors

Inputs = dict[str, Any]
READING = re.compile(r"\b(?:E-[A-Z]\d+|C\d+)\b")
EDGES = {"empty", "one-element", "ties", "negative-zero"}
"""Flags of inputs at the level `edges`; all others are ordinary input."""


def has_empty_axis(_: str, inputs: Inputs) -> bool:
    """Whether a tensor has no element."""
    return any(not tensor.numel() for tensor in tensors(inputs))


def has_axis_of_one(name: str, inputs: Inputs) -> bool:
    """Whether an axis that the signature names has one element."""
    return any(axis.isidentifier() and length == 1 for axis, length in named_axes(name, inputs))


def has_ties(_: str, inputs: Inputs) -> bool:
    """Whether finite scores of a row are equal."""
    return any(
        repeats(row)
        for key, field, value in arguments_and_fields(inputs)
        if key in COMPARED or field in COMPARED
        for tensor in tensors(value)
        for row in rows(tensor)
    )


COMPARED = {"scores", "mass", "preferences", "weights"}
"""Arguments and fields whose elements are compared with each other."""


def repeats(row: Tensor) -> bool:
    """Whether two finite numbers of a row are equal."""
    finite = row[row.isfinite()]
    return finite.is_floating_point() and finite.unique().numel() < finite.numel()


def has_infinite(_: str, inputs: Inputs) -> bool:
    """Whether a number is infinite."""
    return any(bool(tensor.isinf().any()) for tensor in floats(inputs))


def has_negative_zero(_: str, inputs: Inputs) -> bool:
    """Whether a number is −0."""
    return any(bool((tensor.signbit() & (tensor == 0)).any()) for tensor in floats(inputs))


def has_padding(_: str, inputs: Inputs) -> bool:
    """Whether tokens are padding."""
    masks = tensors([inputs.get("valid"), inputs.get("repeat_valid")])
    return any(not bool(mask.all()) for mask in masks)


def has_protected(_: str, inputs: Inputs) -> bool:
    """Whether tokens are protected."""
    masks = [getattr(value, "protected", None) for value in inputs.values()]
    return any(bool(mask.any()) for mask in tensors([inputs.get("protected"), *masks]))


def has_grouped_heads(name: str, inputs: Inputs) -> bool:
    """Whether several query heads share a key head."""
    heads = {"query_heads": [0], "kv_heads": [0]}
    for axis, length in named_axes(name, inputs):
        heads.setdefault(axis, []).append(length)
    return max(heads["query_heads"]) > max(heads["kv_heads"]) > 0


def has_leading_axes(name: str, inputs: Inputs) -> bool:
    """Whether a tensor has more axes than the signature names."""
    return any(axis.startswith("*") for axis, _ in named_axes(name, inputs))


def has_cache(_: str, inputs: Inputs) -> bool:
    """Whether an argument is the state of a cache."""
    kinds = [type(value) for value in inputs.values()]
    return any(kind in RECORDS and kind.__name__.endswith(("Cache", "Block")) for kind in kinds)


def pools_layers_or_heads(_: str, inputs: Inputs) -> bool:
    """Whether heads or layers share a budget."""
    return inputs.get("scope", "head") != "head"


def keeps_nothing_or_all(_: str, inputs: Inputs) -> bool:
    """Whether a budget is 0, or a ratio removes nothing or everything."""
    keep = inputs.get("keep")
    none = any(bool((t == 0).any()) for t in tensors([keep])) or (type(keep) is int and keep == 0)
    return none or inputs.get("ratio") in (0, 1)


FLAGS: dict[str, Callable[[str, Inputs], bool]] = {
    "empty": has_empty_axis,
    "one-element": has_axis_of_one,
    "ties": has_ties,
    "infinite": has_infinite,
    "negative-zero": has_negative_zero,
    "padding": has_padding,
    "protected": has_protected,
    "grouped-heads": has_grouped_heads,
    "leading-axes": has_leading_axes,
    "cache": has_cache,
    "shared-budget": pools_layers_or_heads,
    "extreme-budget": keeps_nothing_or_all,
}


def flags_of(name: str, inputs: Inputs) -> list[str]:
    """Return the flags of a call."""
    return [flag for flag, holds in FLAGS.items() if holds(name, inputs)]


def level_of(flags: list[str]) -> str:
    """Return the level of a vector with these flags that refuses nothing."""
    return "edges" if EDGES & {*flags} else "values"


def readings_of(name: str) -> list[str]:
    """Return the errata and conventions that a function's result depends on."""
    said = (getdoc(unwrap(getattr(reference, name))) or "").partition("Reading:")[2]
    return list(dict.fromkeys(READING.findall(said)))


def named_axes(name: str, inputs: Inputs) -> Iterator[tuple[str, int]]:
    """Yield the name and the length of each axis of the arguments of a call."""
    for key, field, value in arguments_and_fields(inputs):
        names = names_of_axes(name, key, field, value)
        yield from zip(names, getattr(value, "shape", ()), strict=False)


def floats(inputs: Inputs) -> list[Tensor]:
    """Return the floating-point tensors of a call."""
    return [tensor for tensor in tensors(inputs) if tensor.is_floating_point()]


def rows(tensor: Tensor) -> list[Tensor]:
    """Return the rows along the last axis."""
    return [*tensor.reshape(-1, tensor.shape[-1])] if tensor.dim() and tensor.numel() else []
