"""Bind one public function to its bodies, behind one door."""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature, unwrap
from pkgutil import walk_packages
from types import ModuleType
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

from reference._validation.contract import contract

P = ParamSpec("P")
R = TypeVar("R")

HOLDING = (Tensor, tuple)


def dispatch(
    spec: Callable[P, R],
    vector: Callable[P, R],
    kernel: Callable[[], Callable[P, R] | None] = lambda: None,
) -> Callable[P, R]:
    """Return `spec`'s signature and docstring over the fastest body that fits the call.

    A call is held to the contract of `spec`; bodies check nothing, and where they name no default
    they have those of `spec`. The kernel runs where there is one and every tensor of the call is on
    a GPU, and is not asked for before; otherwise the vectorised body does. Nothing is tried twice:
    what a kernel is not made for, its launcher hands on by a rule in its own file.

    Raises:
        TypeError: the body's parameters differ from `spec`'s.
    """
    spec = unwrap(spec)
    fit(vector, spec)
    hold = contract(spec)

    @wraps(spec, assigned=("__name__", "__qualname__", "__doc__", "__annotations__"))
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        hold(args, kwargs)
        given = (*args, *kwargs.values())
        body = kernel() if on_gpu(given) else None
        if body is None:
            return vector(*args, **kwargs)
        with its_gpu(given):
            return body(*args, **kwargs)

    return call


def fit(body: Callable[..., object], spec: Callable[..., object]) -> None:
    """Give a body that names no default those of the specification, and refuse another's."""
    inner, spec = unwrap(body), unwrap(spec)
    if all(p.default is Parameter.empty for p in signature(inner).parameters.values()):
        inner.__defaults__, inner.__kwdefaults__ = spec.__defaults__, spec.__kwdefaults__
    if said(body) != said(spec):
        raise TypeError(f"{body.__module__}.{body.__name__}{said(body)} != {said(spec)}")


def said(body: Callable[..., object]) -> list[tuple[str, object, str]]:
    """Return the parameters of a body: names, defaults, and how they are passed."""
    parameters = signature(unwrap(body)).parameters.values()
    return [(p.name, p.default, p.kind.description) for p in parameters]


def modules(package: str) -> list[ModuleType]:
    """Return the modules of a package, those of packages within it too."""
    places = walk_packages(import_module(package).__path__, f"{package}.")
    return [import_module(place.name) for place in places]


def on_gpu(arguments: Iterable[object]) -> bool:
    """Whether some arguments hold tensors, and all that do hold them on one GPU.

    The first tensor of a record speaks for the others: a cache has thousands.
    """
    place = None
    for argument in arguments:
        if isinstance(argument, HOLDING) and (first := next(tensors(argument), None)) is not None:
            if not first.is_cuda or (place is not None and first.device != place):
                return False
            place = first.device
    return place is not None


def its_gpu(arguments: tuple[object, ...]) -> torch.cuda.device:
    """Make the GPU of a call the current one: Triton launches there, wherever its tensors are."""
    place = next(tensors(arguments)).device
    return torch.cuda.device(place if place.type == "cuda" else -1)


def learning(arguments: Iterable[object]) -> bool:
    """Whether gradients are asked for of what is made of some arguments."""
    return torch.is_grad_enabled() and any(
        tensor.requires_grad
        for argument in arguments
        if isinstance(argument, HOLDING)
        for tensor in tensors(argument)
    )


def forward(vector: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of launchers: where gradients are asked for, the PyTorch body runs."""

    def decorate(launcher: Callable[P, R]) -> Callable[P, R]:
        @wraps(launcher)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            body = vector if learning((*args, *kwargs.values())) else launcher
            return body(*args, **kwargs)

        return call

    return decorate


def tensors(value: object) -> Iterator[Tensor]:
    """Yield a tensor, or those of a record or of a tuple of them."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            if isinstance(part, HOLDING):
                yield from tensors(part)
