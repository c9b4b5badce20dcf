"""Bind one public function to its bodies."""

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from torch import Tensor

P = ParamSpec("P")
R = TypeVar("R")


def dispatch(
    spec: Callable[P, R], vector: Callable[P, R], kernel: Callable[P, R] | None = None
) -> Callable[P, R]:
    """Return `spec`'s signature and docstring over the fastest body that fits the call.

    The kernel runs where there is one and every tensor of the call is on a GPU; otherwise the
    vectorised body does. Neither falls back on the other: what a body cannot do, it raises.

    Raises:
        TypeError: a body's signature differs from `spec`'s.
    """
    for body in filter(None, (vector, kernel)):
        if str(signature(body)) != str(signature(spec)):  # jaxtyping annotations compare by text
            raise TypeError(
                f"{body.__module__}.{body.__name__}{signature(body)} != {signature(spec)}"
            )

    @wraps(spec, assigned=("__name__", "__qualname__", "__doc__", "__annotations__"))
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return (kernel if kernel and on_gpu((*args, *kwargs.values())) else vector)(*args, **kwargs)

    return call


def elementwise(spec: Callable[P, R], kernel: Callable[P, R] | None = None) -> Callable[P, R]:
    """Declare that the specification's own body has no loop: it serves as the vectorised one."""
    return dispatch(spec, spec, kernel)


def on_gpu(arguments: tuple[object, ...]) -> bool:
    """Whether there are tensors among the arguments and all of them are on a GPU."""
    tensors = [argument for argument in arguments if isinstance(argument, Tensor)]
    return bool(tensors) and all(tensor.is_cuda for tensor in tensors)
