"""Flags of a vector: what is special about its inputs (docs/flags.md says why each matters)."""

import re
from collections.abc import Callable
from inspect import getdoc, unwrap
from typing import Any

import torch
from torch import Tensor

import reference
from spec_tests.record_conversion import RECORDS
from spec_tests.report.axis_names import leaves, names_of_axes
from spec_tests.report.calls import tensors

Inputs = dict[str, Any]
READING = re.compile(r"\b(?:E-[A-Z]\d+|C\d+)\b")
EDGES = {"empty", "one-element", "ties", "infinite", "negative-zero"}
"""Flags of inputs at the level `edges`; others are ordinary input."""


def has_empty_axis(_: str, inputs: Inputs) -> bool:
    """Whether a tensor has no element."""
    return any(not tensor.numel() for tensor in tensors(inputs))


def has_axis_of_one(name: str, inputs: Inputs) -> bool:
    """Whether an axis that the signature names has one element."""
    return any(
        axis.isidentifier() and length == 1
        for key, field, value in leaves(inputs)
        for axis, length in zip(
            names_of_axes(name, key, field, value), getattr(value, "shape", ()), strict=False
        )
    )


def has_ties(_: str, inputs: Inputs) -> bool:
    """Whether finite numbers along a last axis are equal."""
    return any(row_has_ties(row) for tensor in floats(inputs) for row in rows(tensor))


def row_has_ties(row: Tensor) -> bool:
    """Whether two finite numbers of a row are equal."""
    finite = row[row.isfinite()]
    return finite.unique().numel() < finite.numel()


def has_infinite(_: str, inputs: Inputs) -> bool:
    """Whether a number is infinite."""
    return any(bool(tensor.isinf().any()) for tensor in floats(inputs))


def has_negative_zero(_: str, inputs: Inputs) -> bool:
    """Whether a number is −0."""
    return any(bool((tensor.signbit() & (tensor == 0)).any()) for tensor in floats(inputs))


def has_padding(_: str, inputs: Inputs) -> bool:
    """Whether tokens are padding."""
    return any(not bool(mask.all()) for mask in tensors(inputs.get("valid")))


def has_protected(_: str, inputs: Inputs) -> bool:
    """Whether tokens are protected."""
    masks = [getattr(value, "protected", None) for value in inputs.values()]
    return any(bool(mask.any()) for mask in tensors([inputs.get("protected"), *masks]))


def has_grouped_heads(name: str, inputs: Inputs) -> bool:
    """Whether several query heads share a key head."""
    heads = {"query_heads": {0}, "kv_heads": {0}}
    for key, field, value in leaves(inputs):
        for axis, length in zip(
            names_of_axes(name, key, field, value), getattr(value, "shape", ()), strict=False
        ):
            heads.setdefault(axis, set()).add(length)
    return max(heads["query_heads"]) > max(heads["kv_heads"]) > 0


def has_leading_axes(name: str, inputs: Inputs) -> bool:
    """Whether a tensor has axes that the signature leaves open."""
    return any(
        axis.startswith("*")
        for key, field, value in leaves(inputs)
        for axis in names_of_axes(name, key, field, value)
    )


def has_cache(_: str, inputs: Inputs) -> bool:
    """Whether an argument is the state of a cache."""
    return any(type(v) in RECORDS and type(v).__name__.endswith("Cache") for v in inputs.values())


def pools_layers_or_heads(_: str, inputs: Inputs) -> bool:
    """Whether heads or layers share a budget."""
    return inputs.get("scope", "head") != "head"


def keeps_nothing_or_all(_: str, inputs: Inputs) -> bool:
    """Whether a budget is none or everything."""
    keep, ratio = inputs.get("keep"), inputs.get("ratio")
    zero = bool((torch.as_tensor(keep) == 0).any()) if keep is not None else False
    return zero or ratio in (0, 1)


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
    """Return the level of a vector that has these flags and refuses nothing."""
    return "edges" if EDGES & {*flags} else "values"


def readings_of(name: str) -> list[str]:
    """Return the errata and conventions on which a function's answer rests."""
    said = (getdoc(unwrap(getattr(reference, name))) or "").partition("Reading:")[2]
    return list(dict.fromkeys(READING.findall(said)))


def floats(inputs: Inputs) -> list[Tensor]:
    """Return the floating-point tensors of a call."""
    return [tensor for tensor in tensors(inputs) if tensor.is_floating_point()]


def rows(tensor: Tensor) -> list[Tensor]:
    """Return the rows along the last axis."""
    return [*tensor.reshape(-1, tensor.shape[-1])] if tensor.dim() and tensor.numel() else []
