"""Flags of a vector: the special properties of its inputs. docs/flags.md says why each matters."""

import re
from inspect import getdoc, unwrap
from typing import Any

from torch import Tensor

import reference
from spec_tests.record_conversion import RECORDS
from spec_tests.report.calls import arguments_and_fields, names_of_axes, tensors

READING = re.compile(r"\b(?:E-[A-Z]\d+|C\d+)\b")
EDGES = {"empty", "one-element", "ties", "negative-zero"}
"""Flags of inputs at the level `edges`; all others are ordinary input."""
COMPARED = {"scores", "mass", "preferences", "weights"}
"""Arguments and fields whose elements are compared with each other."""


def flags_of(name: str, inputs: dict[str, Any]) -> list[str]:
    """Return the flags of a call."""
    parts = [*arguments_and_fields(inputs)]
    compared = tensors([value for key, field, value in parts if {key, field} & COMPARED])
    floats = [tensor for tensor in tensors(inputs) if tensor.is_floating_point()]
    padding = tensors([inputs.get("valid"), inputs.get("repeat_valid")])
    protected = tensors([value for key, field, value in parts if "protected" in (key, field)])
    kinds = [type(value) for value in inputs.values()]
    axes = [
        axis
        for part in parts
        for axis in zip(names_of_axes(name, *part), getattr(part[2], "shape", ()), strict=False)
    ]
    heads, kv_heads = (
        max((length for axis, length in axes if axis == kind), default=0)
        for kind in ("query_heads", "kv_heads")
    )
    keep = inputs.get("keep")
    keeps_none = keep == 0 if type(keep) is int else any((t == 0).any() for t in tensors(keep))
    found = {
        "empty": any(not tensor.numel() for tensor in tensors(inputs)),
        "one-element": any(axis.isidentifier() and length == 1 for axis, length in axes),
        "ties": any(map(has_ties, compared)),
        "infinite": any(tensor.isinf().any() for tensor in floats),
        "negative-zero": any((tensor.signbit() & (tensor == 0)).any() for tensor in floats),
        "padding": any(not mask.all() for mask in padding),
        "protected": any(mask.any() for mask in protected),
        "grouped-heads": heads > kv_heads > 0,
        "leading-axes": any(axis.startswith("*") for axis, _ in axes),
        "cache": any(k in RECORDS and k.__name__.endswith(("Cache", "Block")) for k in kinds),
        "shared-budget": inputs.get("scope", "head") != "head",
        "extreme-budget": keeps_none or inputs.get("ratio") in (0, 1),
    }
    return [flag for flag, holds in found.items() if holds]


def has_ties(tensor: Tensor) -> bool:
    """Whether two finite numbers of a row are equal."""
    rows = tensor.reshape(-1, tensor.shape[-1]) if tensor.dim() and tensor.numel() else []
    finite = [row[row.isfinite()] for row in rows]
    return tensor.is_floating_point() and any(row.unique().numel() < row.numel() for row in finite)


def level_of(flags: list[str]) -> str:
    """Return the level of a vector with these flags that refuses nothing."""
    return "edges" if EDGES & {*flags} else "values"


def readings_of(name: str) -> list[str]:
    """Return the errata and conventions that a function's result depends on."""
    said = (getdoc(unwrap(getattr(reference, name))) or "").partition("Reading:")[2]
    return list(dict.fromkeys(READING.findall(said)))
