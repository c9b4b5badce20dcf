"""What a contract says, in words: the `Raises:` of a function, read from its signature."""

from collections.abc import Callable, Iterator
from inspect import unwrap
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import torch

from reference.contract import FLAG, NUMBERS, SEVERAL, kind_of
from reference.kinds import OneOf, Range


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


def raises(spec: Callable[..., Any]) -> dict[type[Exception], list[str]]:
    """Return the clauses of a `Raises:` section: what is refused as a type, and as a value."""
    kinds, values, spec = [], [], unwrap(spec)
    for name, annotation in get_type_hints(spec, include_extras=True).items():
        if name == "return":
            continue
        words = []
        for base, marks in members(annotation):
            bounds = Range.of(marks)
            if listed := choices_of(base, marks):
                values.append(f"`{name}` is none of {', '.join(map(repr, listed))}")
            elif hasattr(base, "dim_str"):
                words.append(f"{kind_of(base)[0]} tensor")
                bounds = Range.of([getattr(base.dtype, "values", None)])
            elif base in NUMBERS:
                words.append(NUMBERS[base][0])
            elif base is bool:
                words.append(FLAG)
            elif base is torch.dtype:
                words.append("a floating-point dtype")
            elif get_origin(base) in SEVERAL:
                words.append(SEVERAL[get_origin(base)])
            elif hasattr(base, "_fields"):
                words.append(f"a `{base.__name__}`")
            if bounds:
                one = "a value of " if hasattr(base, "dim_str") else ""
                values.append(f"{one}`{name}` is not {bounds.said}")
        if words:
            kinds.append(f"`{name}` is not {' or '.join(dict.fromkeys(words))}")
    values.append("shapes do not fit each other")
    for rule in vars(spec).get("rules", ()):
        said = (rule.__doc__ or "").partition("\n")[0].removeprefix("Refuse ").rstrip(".")
        values.append(f"there is or are {said}")
    return {TypeError: kinds, ValueError: values}
