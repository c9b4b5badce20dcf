"""Write the admissible values and the errors into docstrings, for `help` and for the docs."""

import re
from collections.abc import Callable
from functools import cache
from inspect import getdoc
from textwrap import fill, indent
from typing import Any, get_args, get_origin, get_type_hints

import torch
from annotated_types import Predicate

from reference.contract.enforce import FLAG, NUMBERS, SEVERAL, tensor_kind
from reference.contract.types import BoundsTest, choices_of, members

WIDTH = 92
TYPE_RULES = {"same_dtype", "dtype_of_cache", "of_one_dtype", "joining", "tensor_holding"}
"""Rules that raise a TypeError; every other one raises a ValueError."""


def documented(public: Any) -> Any:
    """Add the admissible values and the errors to the docstring of a function or of settings."""
    if isinstance(public, type) and not hasattr(public, "_fields"):
        return public
    said = {name: f"{name} ({words}):" for name, words in describe_parameters(public).items()}
    prose, source, cites = (getdoc(public) or "").partition("\n\nSource:")
    if not isinstance(public, type):
        head, args, rest = prose.partition("\nArgs:\n")
        meanings, returns, rest = rest.partition("\n\nReturns:")
        results, _, by_body = rest.partition("\n\nRaises:")
        meanings = re.sub(r"(?m)^    (\w+): (.*)", lambda e: _entry(said[e[1]], e[2]), meanings)
        prose = f"{head}{args}{meanings}{returns}{results}\n\nRaises:{_refused(public, by_body)}"
    elif not any("tensor" in words for words in said.values()):  # settings, not results
        prose += "\n    ".join(["\n\nAttributes:", *said.values()])
    public.__doc__ = prose + source + cites
    return public


def describe_parameters(public: Callable[..., Any]) -> dict[str, str]:
    """Return the text for each argument or setting: its admissible values."""
    hints = get_type_hints(public, include_extras=True)
    return {name: admits(hint) for name, hint in hints.items() if name != "return"}


def _entry(said: str, meaning: str) -> str:
    between = " " if len(said + meaning) < WIDTH else "\n" + " " * 8
    return f"    {said}{between}{meaning}"


@cache
def admits(annotation: Any) -> str:
    """Return the text for the values that an annotation admits."""
    kinds = [_one(base, marks) for base, marks in members(annotation)]
    optional = type(None) in get_args(annotation)
    return " or ".join(kinds + ["None"] * optional)


def _one(base: Any, marks: list[Any]) -> str:
    if listed := choices_of(base, marks):
        *others, last = map(repr, listed)
        return f"{', '.join(others)} or {last}"
    bounds = BoundsTest.of(marks)
    if hasattr(base, "dim_str"):
        kind = f"{_bare(tensor_kind(base)[0])} tensor [{base.dim_str.strip()}]"
        return f"{kind}, {bounds.said}" if bounds else kind
    if base in NUMBERS:
        kind = _bare(NUMBERS[base][0])
        between = ", " if bounds and bounds.said.startswith("finite") else " "
        said = f"{kind}{between}{bounds.said}" if bounds else kind
        rules = [mark.func.__name__ for mark in marks if isinstance(mark, Predicate)]
        return ", ".join([said, *rules]).replace("_", " ")
    if get_origin(base) in SEVERAL:
        return f"{_bare(SEVERAL[get_origin(base)])} of {admits(get_args(base)[0])}"
    said = {bool: FLAG, torch.dtype: "floating-point dtype"}.get(base)
    return said or (base.__name__ if isinstance(base, type) else str(base))


def _bare(kind: str) -> str:
    """Return the name of a kind without its article."""
    return kind.partition(" ")[2]


def _refused(spec: Callable[..., Any], by_body: str) -> str:
    """Return the `Raises` entries: wrong kinds, unequal lengths, each rule, errors of the body."""
    clauses = {
        "TypeError": ["an argument is of another kind"],
        "ValueError": ["an argument is out of its range, or axes of one name differ in length"],
    }
    for rule in vars(spec).get("rules", ()):
        said = (rule.__doc__ or "").partition("\n")[0].removeprefix("Refuse ").rstrip(".")
        clauses["TypeError" if rule.__name__ in TYPE_RULES else "ValueError"].append(said)
    for error, why in re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \w|\Z)", by_body):
        clauses.setdefault(error, []).append(" ".join(why.split()).rstrip("."))
    entries = (f"{error}: {'; '.join(why)}." for error, why in clauses.items())
    return "".join(
        "\n" + indent(fill(entry, WIDTH, subsequent_indent="    ", break_on_hyphens=False), "    ")
        for entry in entries
    )
