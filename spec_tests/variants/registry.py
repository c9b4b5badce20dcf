"""Register correct variants, and build modules under test from them."""

from collections.abc import Callable
from functools import wraps
from inspect import unwrap
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

import reference
from reference.hex import expander
from spec_tests.report.calls import mapped
from spec_tests.rounding_noise import Noise

Function = Callable[..., Any]
Level = Literal["values", "edges"]


VARIANTS: dict[Level, dict[str, Function]] = {"values": {}, "edges": {}}
"""Functions by name, at the highest level at which they are right."""


def register_variant(name: str, level: Level = "edges") -> Callable[[Function], Function]:
    """Return a decorator that registers a correct variant: `@register_variant("hub_mask")`.

    The variant has the signature of the public function, and does not check its arguments. Its
    docstring describes its method.
    """
    assert name in reference.__all__, f"{name} is no public name"

    def register(body: Function) -> Function:
        VARIANTS[level][name] = body
        return body

    return register


def reference_with(change: Callable[[Function], Function], **names: Any) -> SimpleNamespace:
    """Return the reference as a module with each function changed, and other names added."""
    public = {name: getattr(reference, name) for name in reference.__all__}
    functions = {name: change(x) for name, x in public.items() if not isinstance(x, type)}
    return SimpleNamespace(**public | functions | names)


def forward(function: Function) -> Function:
    """Return a function that only calls another, so that it is not the reference's own object."""
    return wraps(function)(lambda *args, **kwargs: function(*args, **kwargs))


def with_rounding_noise(seed: int) -> Callable[[Function], Function]:
    """Return a wrapper that runs a function with every operation rounded differently."""

    def wrap(function: Function) -> Function:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with Noise(seed):
                return function(*args, **kwargs)

        return call

    return wrap


class Reseeded(np.random.RandomState):
    """NumPy's generator with another stream for each seed."""

    def __init__(self, seed: Any = None):
        super().__init__(seed if seed is None else [*np.atleast_1d(seed), 1])


def reseed(function: Function) -> Function:
    """Return a function wrapped to draw from other random streams for the same seeds."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with (
            patch.object(np.random, "RandomState", Reseeded),
            patch.object(expander, "_recent_masks", expander.expander_mask),
        ):
            return function(*args, **kwargs)

    return call


masks_elsewhere = reseed(reference.expander_mask)


class ReseededStore(reference.MaskStore):
    """The mask store, with masks of other random streams."""

    def __init__(self, directory: Any = None, capacity: int = 8, generate: Any = masks_elsewhere):
        super().__init__(directory, capacity, generate)


def in_double(function: Function) -> Function:
    """Return a function wrapped to compute in float64 and to round once at the end.

    Functions that read or make a cache stay unchanged: a cache's dtypes determine its bytes, and
    are those of the restored tensors.
    """
    about = {str(kind) for kind in unwrap(function).__annotations__.values()}
    stored = any(kind.endswith(("Cache'>", "Cache")) for kind in about)
    if stored or function.__name__.endswith("bytes") or function.__name__ in WEIGHING:
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        like = function(*args, **kwargs)
        return as_kinds_of(function(*mapped(widen, args), **mapped(widen, kwargs)), like)

    return call


WEIGHING = {"sensitivity", "compress", "hex_compress", "gear_compress"}
"""Further functions that count bytes, or make a cache or a block of one."""


def widen(x: Tensor) -> Tensor:
    """Return a floating-point tensor in float64."""
    return x.double() if x.is_floating_point() else x


def as_kinds_of(value: Any, like: Any) -> Any:
    """Return a result with its tensors cast to the dtypes of another result."""
    if isinstance(value, Tensor) and isinstance(like, Tensor):
        return value.to(like.dtype)
    if isinstance(value, tuple) and isinstance(like, tuple) and len(value) == len(like):
        parts = [as_kinds_of(v, k) for v, k in zip(value, like, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value if not isinstance(value, torch.dtype) else like
