"""A module under test, as the suite sees it."""

from collections.abc import Callable, Iterable
from functools import cached_property
from importlib import import_module
from inspect import unwrap
from typing import Any

import pytest
import torch
from torch import Tensor

import reference
from optimized import vector
from spec_tests.index import are_ours, source

LACKS = "needs a name that the module lacks"
OURS = ("reference", "optimized", "optimized.vector", "optimized.kernels")


def layers_on(device: str) -> tuple[str, ...]:
    """Return what is tested where nothing is named.

    On a CPU `optimized` runs its vectorised bodies (`test_layers` holds the table to that), which
    need no second run under the name of their own layer.
    """
    on_cpu = torch.device(device).type == "cpu"
    return tuple(name for name in OURS if not (on_cpu and name == "optimized.vector"))


class Implementation:
    """A module under test. A test of a name it lacks is not collected.

    What the papers name without defining is left alone in others' modules, unless they ask: a
    function of theirs may go by the same name.
    """

    def __init__(self, name: str, device: str = "cpu", asked: bool = False):
        module, _, attribute = name.partition(":")
        self.module = import_module(module)
        if attribute:
            self.module = getattr(self.module, attribute)
        self.name, self.device = name, torch.device(device)
        self.ours = name in OURS
        self.asked = asked or self.ours

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The public names it is asked for."""
        return frozenset(n for n in reference.__all__ if self.asked or not are_ours(source(n)))

    @cached_property
    def lacks(self) -> frozenset[str]:
        """What it is asked for and lacks."""
        unseen = self.wanted - set(dir(self.module))
        return frozenset(name for name in unseen if not hasattr(self.module, name))

    @property
    def missing(self) -> list[str]:
        """What it lacks, settings and results apart: any tuple of the same fields will do."""
        return sorted(n for n in self.lacks if not hasattr(getattr(reference, n), "_fields"))

    def offers(self, names: Iterable[str]) -> bool:
        """Whether it has all of these public names, and is asked for them."""
        return self.wanted - self.lacks >= set(names)

    def has_own(self, name: str) -> bool:
        """Whether a function's body is its own, and not the reference's."""
        bodies = vector if self.name == "optimized" else self.module
        return unwrap(getattr(bodies, name)) is not unwrap(getattr(reference, name))

    @property
    def has_door(self) -> bool:
        """Whether calls are held to the contract: the bodies behind `optimized` check nothing."""
        return not self.name.startswith("optimized.")

    @property
    def is_interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, which takes half a millisecond a program."""
        return self.name == "optimized.kernels" and self.device.type == "cpu"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        """Return a public function, its inputs and results carried to and from the device."""
        if name not in reference.__all__:
            raise AttributeError(f"{name} is not in the specification")
        if not self.offers([name]):
            pytest.skip(LACKS)
        function = getattr(self.module, name)
        if self.device.type == "cpu":
            return function
        return lambda *args, **kwargs: carry(
            function(
                *(carry(a, self.device) for a in args),
                **{k: carry(v, self.device) for k, v in kwargs.items()},
            ),
            torch.device("cpu"),
        )

    def __repr__(self) -> str:
        return self.name


def carry(value: Any, device: torch.device) -> Any:
    """Move a tensor, or a tuple of them, to `device`."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        moved = [carry(part, device) for part in value]
        return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
    return value


def under_test(item: pytest.Item) -> Implementation | None:
    """Return the implementation a collected test runs against, if it runs against one."""
    callspec = getattr(item, "callspec", None)
    impl = callspec.params.get("impl") if callspec else None
    return impl if isinstance(impl, Implementation) else None  # pytest fills in an empty list
