"""What a contract says, in words: written into docstrings, for `help` and for the pages."""

import re
from collections.abc import Callable, Iterator
from functools import cache
from inspect import getdoc, isfunction, ismodule
from textwrap import fill, indent
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import torch
from annotated_types import Predicate

from reference._validation.contract import FLAG, NUMBERS, SEVERAL, tensor_kind
from reference._validation.types import BoundsTest, OneOf

WIDTH = 92


def documented(public: Any) -> Any:
    """Write what is admitted and what is refused into the docstring of a function or settings."""
    if isinstance(public, type) and not hasattr(public, "_fields"):
        return public
    said = {name: f"{name} ({words}):" for name, words in admitted(public).items()}
    prose, source, cites = (getdoc(public) or "").partition("\n\nSource:")
    if not isinstance(public, type):
        head, args, rest = prose.partition("\nArgs:\n")
        meanings, returns, rest = rest.partition("\n\nReturns:")
        results, _, by_body = rest.partition("\n\nRaises:")
        meanings = re.sub(r"(?m)^    (\w+): (.*)", lambda e: _entry(said[e[1]], e[2]), meanings)
        prose = f"{head}{args}{meanings}{returns}{results}\n\nRaises:{_refused(public, by_body)}"
    elif not any("tensor" in words for words in said.values()):  # settings, no result
        prose += "\n    ".join(["\n\nAttributes:", *said.values()])
    public.__doc__ = prose + source + cites
    return public


def admitted(public: Callable[..., Any]) -> dict[str, str]:
    """Say what each argument or setting may be."""
    hints = get_type_hints(public, include_extras=True)
    return {name: admits(hint) for name, hint in hints.items() if name != "return"}


def _entry(said: str, meaning: str) -> str:
    between = " " if len(said + meaning) < WIDTH else "\n" + " " * 8
    return f"    {said}{between}{meaning}"


@cache
def admits(annotation: Any) -> str:
    """Say what an argument may be."""
    kinds = [_one(base, marks) for base, marks in members(annotation)]
    return " or ".join([*kinds, *["None"] * (type(None) in get_args(annotation))])


def _one(base: Any, marks: list[Any]) -> str:
    if listed := choices_of(base, marks):
        *others, last = map(repr, listed)
        return f"{', '.join(others)} or {last}"
    if hasattr(base, "dim_str"):
        bounds = BoundsTest.of([getattr(base.dtype, "values", None)])
        kind = f"{_bare(tensor_kind(base)[0])} tensor [{base.dim_str.strip()}]"
        return f"{kind}, {bounds.said}" if bounds else kind
    if base in NUMBERS:
        bounds, kind = BoundsTest.of(marks), _bare(NUMBERS[base][0])
        between = ", " if bounds and bounds.said.startswith("finite") else " "
        said = f"{kind}{between}{bounds.said}" if bounds else kind
        rules = [mark.func.__name__ for mark in marks if isinstance(mark, Predicate)]
        return ", ".join([said, *rules]).replace("_", " ")
    if get_origin(base) in SEVERAL:
        return f"{_bare(SEVERAL[get_origin(base)])} of {admits(get_args(base)[0])}"
    return {bool: FLAG, torch.dtype: "floating-point dtype"}.get(base) or base.__name__


def _bare(kind: str) -> str:
    """Return a kind without its article."""
    return kind.partition(" ")[2]


def _refused(spec: Callable[..., Any], by_body: str) -> str:
    """Say what raises: an argument alone, arguments of different lengths, each rule, the body."""
    clauses = {
        "TypeError": ["an argument is of another kind"],
        "ValueError": ["an argument is out of its range, or axes of one name differ in length"],
    }
    for rule in vars(spec).get("rules", ()):
        said = (rule.__doc__ or "").partition("\n")[0].removeprefix("Refuse ").rstrip(".")
        clauses["TypeError" if TypeError in raised(rule) else "ValueError"].append(said)
    for error, why in re.findall(r"(?ms)^    (\w+): (.*?)(?=^    \w|\Z)", by_body):
        clauses.setdefault(error, []).append(" ".join(why.split()).rstrip("."))
    entries = (f"{error}: {'; '.join(why)}." for error, why in clauses.items())
    return "".join(
        "\n" + indent(fill(entry, WIDTH, subsequent_indent="    ", break_on_hyphens=False), "    ")
        for entry in entries
    )


def raised(rule: Callable[..., Any]) -> set[type]:
    """Return the kinds of errors that a rule names, or a function of ours that it calls."""
    errors, left, seen = set(), [rule], set()
    while left:
        seen.add(one := left.pop())
        used, spaces = one.__code__.co_names, [one.__globals__]
        spaces += [vars(x) for name in used if ismodule(x := one.__globals__.get(name))]
        errors |= {kind for kind in (TypeError, ValueError) if kind.__name__ in used}
        called = {space[name] for space in spaces for name in used if isfunction(space.get(name))}
        left += [f for f in called - seen if f.__module__.startswith("reference.")]
    return errors


def members(annotation: Any) -> Iterator[tuple[Any, list[Any]]]:
    """Yield the members of an annotation, each with its marks; `None` is left out."""
    base, *marks = get_args(annotation) if get_origin(annotation) is Annotated else [annotation]
    kinds = get_args(base)
    listed = get_origin(base) is Literal or any(isinstance(mark, OneOf) for mark in marks)
    if not kinds or listed or get_origin(base) in SEVERAL:
        yield base, marks
    else:
        for kind in kinds:
            if kind is not type(None):
                yield from members(kind)


def choices_of(base: Any, marks: list[Any]) -> tuple[Any, ...]:
    """Return the values that an annotation lists, if it lists any."""
    listed = next((mark.choices for mark in marks if isinstance(mark, OneOf)), ())
    return get_args(base) if get_origin(base) is Literal else listed
