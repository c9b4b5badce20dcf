"""Record the calls that a test makes, with copies of their inputs; name the axes of arguments."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import cache, cached_property, wraps
from inspect import signature, unwrap
from itertools import repeat
from typing import Any, get_args

import torch
from torch import Tensor

import reference

Given = tuple[tuple[Any, ...], dict[str, Any]]  # arguments by position and by name


class Call:
    """One call of a function under test, and its outcome: a result or an exception."""

    def __init__(self, impl: Any, name: str, function: Callable[..., Any], given: Given):
        self.impl, self.name, self.function = impl, name, function
        self.given = given
        # our own modules do not modify their arguments, so that no copy is needed
        self.before = given if impl and impl.ours else mapped(contiguous_copy, given)
        self.outcome: Any = None

    @cached_property
    def size(self) -> int:
        """The number of elements of its inputs."""
        return count_elements(self.before)

    @cached_property
    def passed(self) -> dict[str, Any]:
        """The arguments by name: the objects that were passed, possibly modified since."""
        return arguments_by_name(self.name, self.given)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The arguments by name, as they were before the call, contiguous."""
        return mapped(contiguous_copy, arguments_by_name(self.name, self.before))


LAST: deque[Call] = deque(maxlen=64)
"""The latest calls of the running test or of its current example."""
UNFAULTED: defaultdict[str, dict[str, list[Call]]] = defaultdict(dict)
"""By function and test, the largest calls of third-party modules in examples that passed."""
SMALL, FEW = 2**10, 4
"""Largest number of elements of a call in `UNFAULTED`, and number of calls for each test."""


def record_passing_calls(test: str) -> None:
    """Add the latest calls to `UNFAULTED`, after a test or one of its examples has passed."""
    for name, call in {call.name: call for call in reversed(LAST)}.items():
        if call.impl and not call.impl.ours and call.size <= SMALL:
            best = UNFAULTED[name].setdefault(test, [])
            best[:] = sorted([*best, call], key=lambda call: -call.size)[:FEW]


def count_elements(value: Any) -> int:
    """Return the number of elements of the tensors in nested tuples, lists and dictionaries."""
    return sum(tensor.numel() for tensor in tensors(value))


def arguments_by_name(name: str, given: Given) -> dict[str, Any]:
    """Return the arguments of a call by name; none if they do not fit the signature."""
    try:
        return signature(getattr(reference, name)).bind(*given[0], **given[1]).arguments
    except TypeError:
        return {}


def record_calls(impl: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` wrapped to append its calls to `LAST`."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        made = Call(impl, name, function, (args, kwargs))
        try:
            made.outcome = function(*args, **kwargs)
        except Exception as error:
            made.outcome = error
            LAST.append(made)
            raise
        LAST.append(made)
        return made.outcome

    return call


def contiguous_copy(tensor: Tensor) -> Tensor:
    """Return a detached copy of a tensor, contiguous if it is dense."""
    bare = tensor.detach() if tensor.requires_grad else tensor
    dense = tensor.layout is torch.strided
    return bare.clone(memory_format=torch.contiguous_format) if dense else bare.clone()


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return `value` with `change` applied to each tensor in tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {name: mapped(change, part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        parts = [mapped(change, part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def tensors(value: Any) -> list[Tensor]:
    """Return every tensor in nested tuples, lists and dictionaries."""
    found: list[Tensor] = []
    mapped(lambda tensor: found.append(tensor) or tensor, value)
    return found


def arguments_and_fields(inputs: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield argument name, field name and value; only a record has field names."""
    for key, value in inputs.items():
        fields = getattr(value, "_fields", None)
        yield from zip(repeat(key), fields, value, strict=False) if fields else [(key, "", value)]


def names_of_axes(name: str, key: str, field: str, value: Any) -> list[str]:
    """Return the names of a tensor's axes from the signature, numbering those of `*batch`."""
    words = [*axis_words(name, key, field)] if isinstance(value, Tensor) else []
    if words and words[0].startswith("*"):
        words = [f"{words[0]}{axis}" for axis in range(value.dim() - len(words) + 1)] + words[1:]
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
