"""The calls that a test made of the module under test, with their inputs as they were."""

from collections import defaultdict, deque
from collections.abc import Callable
from functools import cached_property, wraps
from inspect import signature
from typing import Any

import torch
from torch import Tensor

import reference

Given = tuple[tuple[Any, ...], dict[str, Any]]  # by position, and by name


class Call:
    """One call of a function under test, and what came of it: a result, or the exception."""

    def __init__(self, impl: Any, name: str, function: Callable[..., Any], given: Given):
        self.impl, self.name, self.function = impl, name, function
        self.given = given
        self.before = given if impl and impl.ours else mapped(kept, given)  # ours are known
        self.outcome: Any = None

    @cached_property
    def size(self) -> int:
        """How many elements it takes."""
        return elements(self.before)

    @cached_property
    def passed(self) -> dict[str, Any]:
        """The arguments by name, the very objects, whatever became of them."""
        return named(self.name, self.given)

    @cached_property
    def inputs(self) -> dict[str, Any]:
        """The arguments by name, as they were, contiguous."""
        return mapped(kept, named(self.name, self.before))


LAST: deque[Call] = deque(maxlen=64)
"""The calls since a test, or one of its examples, began: the latest, of very many."""
UNFAULTED: defaultdict[str, dict[str, list[Call]]] = defaultdict(dict)
"""By function and test, calls of others' modules that the test found no fault with: the largest."""
SMALL, FEW = 2**10, 4
"""Elements up to which a call is remembered so, and how many are of one test."""


def unfaulted(test: str) -> None:
    """Remember the calls since a test, or one of its examples, began: it passed."""
    for name, call in {call.name: call for call in reversed(LAST)}.items():
        if call.impl and not call.impl.ours and call.size <= SMALL:
            best = UNFAULTED[name].setdefault(test, [])
            best[:] = sorted([*best, call], key=lambda call: -call.size)[:FEW]


def elements(value: Any) -> int:
    """Count the elements of the tensors in nested tuples, lists and dictionaries."""
    return sum(tensor.numel() for tensor in tensors(value))


def named(name: str, given: Given) -> dict[str, Any]:
    """Return the arguments of a call by name; nothing where the specification has no such call."""
    try:
        return signature(getattr(reference, name)).bind(*given[0], **given[1]).arguments
    except TypeError:
        return {}


def recorded(impl: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`, whose calls are written down."""

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


def kept(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor, its elements in order; a sparse one has none."""
    bare = tensor.detach() if tensor.requires_grad else tensor
    return bare.clone(memory_format=torch.contiguous_format) if dense(tensor) else bare.clone()


def dense(tensor: Tensor) -> bool:
    """Whether a tensor has strides."""
    return tensor.layout is torch.strided


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
