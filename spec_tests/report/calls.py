"""The calls that a test made of the module under test, with their inputs as they were."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any

from torch import Tensor

import reference


@dataclass
class Call:
    """One call of a function under test, and what came of it."""

    impl: Any
    name: str
    function: Callable[..., Any]
    passed: dict[str, Any]  # the very objects, whatever became of them
    inputs: dict[str, Any]  # copies of before, contiguous
    outcome: Any = None  # a result, or the exception


LAST: deque[Call] = deque(maxlen=64)
"""The calls since a test, or one of its examples, began: the latest, of very many."""


def recorded(impl: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, whose calls are written down."""
    parameters = signature(getattr(reference, name))

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            passed = parameters.bind(*args, **kwargs).arguments
        except TypeError:  # an argument of theirs alone, or one too few
            return function(*args, **kwargs)
        made = Call(impl, name, function, passed, copied(passed))
        try:
            made.outcome = function(*args, **kwargs)
        except Exception as error:
            made.outcome = error
            LAST.append(made)
            raise
        LAST.append(made)
        return made.outcome

    return call


def copied(value: Any) -> Any:
    """Return `value` with copies of the tensors in nested tuples, lists and dictionaries."""
    return mapped(lambda tensor: tensor.detach().clone().contiguous(), value)


def mapped(change: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return `value` with every tensor in nested tuples, lists and dictionaries changed."""
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
