"""A module under test, as the suite sees it."""

from collections.abc import Callable, Iterable
from functools import cached_property, wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import unwrap
from typing import Any

import pytest
import torch

import reference
from spec_tests.index import are_ours, source
from spec_tests.records import Own, handed, is_record, own_records, result_of, taken
from spec_tests.report.calls import mapped, recorded

LACKS = "needs a name that the module lacks"
COMPOSED = 2
"""Examples in Triton's interpreter of what runs no kernel but those of other functions, unless
`--impl optimized.kernels` asks for all."""
OURS = ("reference", "optimized", "optimized.vector", "optimized.kernels")
TRITON = find_spec("triton") is not None
"""Whether Triton is installed: it is for Linux on x86-64 alone."""


def layers_on(device: str) -> tuple[str, ...]:
    """Return what is tested where nothing is named.

    On a CPU `optimized` runs its vectorised bodies (`test_layers` holds the table to that), which
    need no second run under the name of their own layer. Without Triton there are no kernels.
    """
    idle = {"optimized.vector"} if torch.device(device).type == "cpu" else set[str]()
    idle |= set() if TRITON else {"optimized.kernels"}
    return tuple(name for name in OURS if name not in idle)


class Unheard(pytest.skip.Exception):
    """A module is not asked this: what it is made of has no such dtype."""


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
        """What it is asked for and lacks; records apart, since any of the same fields will do."""
        unseen = self.wanted - set(dir(self.module))
        asked = (name for name in unseen if not is_record(name))
        return frozenset(name for name in asked if not hasattr(self.module, name))

    @cached_property
    def unasked(self) -> frozenset[str]:
        """What it offers of what the papers name without defining, and is not asked for."""
        others = frozenset(reference.__all__) - self.wanted
        return frozenset(n for n in others if not is_record(n) and hasattr(self.module, n))

    def hears(self, dtype: torch.dtype) -> bool:
        """Whether it is asked at a dtype: those that it lists as `dtypes`, if it does."""
        return dtype in getattr(self.module, "dtypes", (dtype,))

    @cached_property
    def own(self) -> Own:
        """Its own records: it is handed these, and may return them."""
        return {} if self.ours else own_records(self.module)

    def offers(self, names: Iterable[str]) -> bool:
        """Whether it has all of these public names, and is asked for them."""
        return self.wanted - self.lacks >= set(names)

    def is_asked(self, names: Iterable[str]) -> bool:
        """Whether a test of these names says something: a module may name what it has changed."""
        changed = getattr(self.module, "changed", None)
        return changed is None or not changed.isdisjoint(names)

    @cached_property
    def composed(self) -> frozenset[str]:
        """The functions that run in Triton's interpreter by the kernels of others alone."""
        if not self.is_interpreted:
            return frozenset()
        return frozenset(self.module.__all__) - frozenset(self.module.LAUNCHERS)

    def has_own(self, name: str) -> bool:
        """Whether a function's body is its own, and not the reference's; so too a record."""
        if is_record(name):
            return getattr(reference, name) in self.own
        bodies = import_module("optimized.vector") if self.name == "optimized" else self.module
        return unwrap(getattr(bodies, name)) is not unwrap(getattr(reference, name))

    @property
    def has_door(self) -> bool:
        """Whether calls are held to the contract: the bodies behind `optimized` check nothing."""
        return not self.name.startswith("optimized.")

    @property
    def learns(self) -> bool:
        """Whether gradients flow through it: those of PyTorch do, and kernels have none."""
        return self.name in OURS[:3] and self.device.type == "cpu"

    @property
    def is_interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, which takes half a millisecond a program."""
        return self.name == "optimized.kernels" and self.device.type == "cpu"

    def __getattr__(self, name: str) -> Any:
        """Return what the module has under a public name, or the specification's record.

        The inputs and results of a function are carried to and from the device and the module's
        own records, and its calls are written down.
        """
        if name not in reference.__all__:
            raise AttributeError(f"{name} is not in the specification")
        if is_record(name):
            record = getattr(reference, name)
            return self.own.get(record, record)
        if not self.offers([name]):
            pytest.skip(LACKS)
        found = getattr(self.module, name)
        if not isinstance(found, type):
            found = recorded(self, name, self.crossing(found, result_of(name)))
        vars(self)[name] = found
        return found

    def crossing(self, function: Callable[..., Any], hint: Any) -> Callable[..., Any]:
        """Return `function`, called on its own device and with its own records."""
        here = self.device.type == "cpu"
        if here and self.ours:
            return function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = (args, kwargs) if here else carry((args, kwargs), self.device)
            given = handed(given, self.own) if self.own else given
            result = taken(function(*given[0], **given[1]), hint, self.own)
            return result if here else carry(result, torch.device("cpu"))

        return call

    def __repr__(self) -> str:
        return self.name


def carry(value: Any, device: torch.device) -> Any:
    """Move the tensors in nested tuples, lists and dictionaries to `device`.

    They lie there as they lay: kernels are made for strides, and for where a tensor starts.
    """

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        layout = tensor.shape, tensor.stride(), tensor.storage_offset()
        length = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor.as_strided((length,), (1,), 0).to(device).as_strided(*layout)

    return mapped(moved, value)


def under_test(item: pytest.Item) -> Implementation | None:
    """Return the implementation a collected test runs against, if it runs against one."""
    callspec = getattr(item, "callspec", None)
    impl = callspec.params.get("impl") if callspec else None
    return impl if isinstance(impl, Implementation) else None  # pytest fills in an empty list
