"""Dispatch a public function to its vectorised body or to its kernel."""

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from importlib import import_module
from inspect import Parameter, signature, unwrap
from pkgutil import walk_packages
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

import reference
from reference.contract.enforce import compile_contract

P = ParamSpec("P")
R = TypeVar("R")

HOLDING = (Tensor, tuple)


def dispatch(
    spec: Callable[P, R],
    vector: Callable[P, R],
    kernel: Callable[[], Callable[P, R] | None] = lambda: None,
) -> Callable[P, R]:
    """Return a function with `spec`'s signature and docstring that runs the fastest body.

    It checks each call against the contract of `spec`; bodies check nothing, but for the values
    that a vectorised body `checks_values_of`. A body without
    defaults takes those of `spec`. If all tensors of the call are on one GPU, `kernel` is called
    to look up the kernel. If there is one, it runs; otherwise the vectorised body runs. No call is
    tried twice: a launcher falls back to PyTorch by a rule in its own file.

    Raises:
        TypeError: the parameters of `vector` differ from those of `spec`.
    """
    spec = unwrap(spec)
    inherit_defaults(vector, spec)
    hold = compile_contract(spec)
    unread = vars(unwrap(vector)).get("unread")
    hold_the_rest = compile_contract(spec, unread) if unread else hold

    @wraps(spec, assigned=("__name__", "__qualname__", "__doc__", "__annotations__"))
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = (*args, *kwargs.values())
        body = kernel() if on_gpu(given) else None
        args, kwargs = (hold if body else hold_the_rest)(args, kwargs)  # pyright: ignore
        if body is None:
            return vector(*args, **kwargs)
        with gpu_context(given):
            return body(*args, **kwargs)

    call.__module__ = "optimized"  # pickle looks for the function there
    return call


def kernel_of(name: str) -> Any:
    """Return the kernel of a function, or None; the first call imports Triton."""
    from optimized import kernels

    return getattr(kernels, name, None)


def kernel_on_gpu(body: Callable[P, R]) -> Callable[P, R]:
    """Return a vectorised body for other bodies to call: on a GPU its kernel runs in its place.

    The body itself stands in `optimized.vector`, where a launcher finds it to fall back to.
    """

    @wraps(body)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        given = (*args, *kwargs.values())
        kernel = kernel_of(body.__name__) if on_gpu(given) else None
        if kernel is None:
            return body(*args, **kwargs)
        with gpu_context(given):
            return kernel(*args, **kwargs)

    vars(call)["without_kernel"] = body
    return call


def checks_values_of(*names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of vectorised bodies that check the values of these tensors themselves.

    A pass over all keys takes as long as their norms do: such a body looks at its result.
    """

    def mark(body: Callable[P, R]) -> Callable[P, R]:
        vars(body)["unread"] = names
        return body

    return mark


def inherit_defaults(body: Callable[..., object], spec: Callable[..., object]) -> None:
    """Give a body without defaults those of the specification; refuse different parameters."""
    inner, spec = unwrap(body), unwrap(spec)
    if all(p.default is Parameter.empty for p in signature(inner).parameters.values()):
        inner.__defaults__, inner.__kwdefaults__ = spec.__defaults__, spec.__kwdefaults__
    mine, theirs = parameters_of(body), parameters_of(spec)
    if mine != theirs:
        raise TypeError(f"{body.__module__}.{body.__name__}{mine} != {theirs}")


def parameters_of(body: Callable[..., object]) -> list[tuple[str, object, str]]:
    """Return the name, the default and the kind of each parameter of a body."""
    parameters = signature(unwrap(body)).parameters.values()
    return [(p.name, p.default, p.kind.description) for p in parameters]


def public_bodies(package: str) -> dict[str, Any]:
    """Return what the modules of a package define under names of the specification."""
    return {
        name: body
        for home in modules(package)
        for name, body in vars(home).items()
        if name in reference.__all__ and getattr(body, "__module__", None) == home.__name__
    }


def modules(package: str) -> list[ModuleType]:
    """Return the modules of a package and of its subpackages."""
    # this is how a body or a kernel is found, without a list that names it
    places = walk_packages(import_module(package).__path__, f"{package}.")
    return [import_module(module.name) for module in places]


def on_gpu(arguments: Iterable[object]) -> bool:
    """Whether at least one argument holds a tensor, and all tensors are on one GPU.

    Only the first tensor of a record is looked at: a cache has thousands.
    """
    device = None
    for argument in arguments:
        first = argument
        if isinstance(argument, tuple):
            first = next(tensors(argument), None)
        if isinstance(first, Tensor):
            if not first.is_cuda or (device is not None and first.device != device):
                return False
            device = first.device
    return device is not None


def gpu_context(arguments: tuple[object, ...]) -> torch.cuda.device:
    """Return a context in which the GPU of the arguments is the current device.

    Triton launches on the current device, wherever the tensors are.
    """
    device = next(tensors(arguments)).device
    return torch.cuda.device(device if device.type == "cuda" else -1)


def learning(arguments: Iterable[object]) -> bool:
    """Whether autograd records what is computed from the arguments."""
    return torch.is_grad_enabled() and any(
        tensor.requires_grad
        for argument in arguments
        if isinstance(argument, HOLDING)
        for tensor in tensors(argument)
    )


def gradient_fallback(vector: Callable[P, R]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of launchers that falls back to `vector` where gradients are needed."""

    def decorate(launcher: Callable[P, R]) -> Callable[P, R]:
        @wraps(launcher)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            body = vector if learning((*args, *kwargs.values())) else launcher
            return body(*args, **kwargs)

        return call

    return decorate


def tensors(value: object) -> Iterator[Tensor]:
    """Yield a tensor itself, or the tensors of a tuple or record and of those inside it."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            if isinstance(part, HOLDING):
                yield from tensors(part)
