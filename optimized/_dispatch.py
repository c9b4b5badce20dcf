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
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, Tensor)]
        body = kernel if kernel and all(t.is_cuda for t in tensors) else vector
        return body(*args, **kwargs)

    return call
