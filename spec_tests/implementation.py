"""A module under test: which functions it offers, and how the suite calls them."""

import ast
import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from difflib import get_close_matches
from functools import cached_property, wraps
from importlib import import_module
from importlib.util import find_spec
from inspect import getsource, unwrap
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest
import torch

import reference
from spec_tests import record_conversion
from spec_tests.index import are_undefined_in_papers, source_equations
from spec_tests.limits import SECONDS, Alarm, Limit
from spec_tests.program import LeftOut, NotSupported, Program
from spec_tests.record_conversion import is_record
from spec_tests.report.calls import mapped, record_calls
from spec_tests.report.literals import snippet

LACKS = "needs a name that the module lacks"
NEAR = 0.8
"""Least similarity at which a name counts as a misspelling of a missing one: the share of common
letters."""
OURS = ("reference", "optimized", "optimized.vector", "optimized.kernels")
TRITON = find_spec("triton") is not None
"""Whether Triton is installed: it exists for Linux on x86-64 only."""


def default_implementations(device: str) -> tuple[str, ...]:
    """Return the layers of this project that a run without `--impl` tests on a device.

    On a CPU `optimized` runs its vectorised bodies, which `test_fast_layers` checks. They need no
    second run as `optimized.vector`. Without Triton there are no kernels.
    """
    idle = {"optimized.vector"} if torch.device(device).type == "cpu" else set[str]()
    idle |= set() if TRITON else {"optimized.kernels"}
    return tuple(name for name in OURS if name not in idle)


class Implementation:
    """A module under test. A test of a name that it lacks is not collected.

    Functions that the papers name but do not define are tested in third-party modules only under
    `--ours`: a function of the same name may do something else. Calls of third-party modules have a
    time limit.

    Args:
        name: the module's name, optionally with a colon and the name of an attribute. A program
            is the attribute of `spec_tests.program` that its command names.
        device: the device of its inputs.
        asked: test also the functions that the papers name but do not define (`--ours`).
        paper: `HubKV`, `GraphKV` or `HEX`: test only functions that state an equation of this one.
        seconds: time limit of a call; 0 is no limit.
    """

    def __init__(
        self,
        name: str,
        device: str = "cpu",
        asked: bool = False,
        paper: str = "",
        seconds: float = SECONDS,
    ):
        module, _, attribute = name.partition(":")
        self.module = import_module(module)
        if attribute:
            self.module = getattr(self.module, attribute)
        self.program = self.module if isinstance(self.module, Program) else None
        self.name = self.program.title if self.program else name
        self.device = torch.device(device)
        self.ours = name in OURS
        self.asked, self.paper = asked or self.ours, paper
        self.limit = Limit(seconds)

    @property
    def draws_alike(self) -> bool:
        """Whether it uses the specification's random streams, as our layers and mutants do."""
        return self.ours or self.name.startswith("spec_tests.mutants:")

    @cached_property
    def wanted(self) -> frozenset[str]:
        """The public names that a test may use."""
        cited = {name: source_equations(name) for name in reference.__all__}
        return frozenset(n for n in cited if self.asked or not are_undefined_in_papers(cited[n]))

    @cached_property
    def judged(self) -> frozenset[str]:
        """The names that the run reports on: all wanted ones, or those of one paper."""
        cited = {name: source_equations(name) for name in self.wanted} if self.paper else {}
        start = f"{self.paper}-"
        mine = (name for name, ids in cited.items() if any(i.startswith(start) for i in ids))
        return frozenset(mine) if self.paper else self.wanted

    @cached_property
    def lacks(self) -> frozenset[str]:
        """The wanted functions that it lacks, or that have no body yet.

        Records are not counted: equal fields are enough.
        """
        there = set(dir(self.module))
        unseen = (n for n in self.wanted - there if not is_record(n))
        own = vars(self.module) if isinstance(self.module, ModuleType) and not self.ours else {}
        stubs = frozenset(name for name in self.wanted & own.keys() if is_stub(own[name]))
        return stubs.union(name for name in unseen if not hasattr(self.module, name))

    @cached_property
    def offered(self) -> list[str]:
        """The reported functions that the module has."""
        names = self.judged - self.lacks
        return [n for n in reference.__all__ if n in names and not is_record(n)]

    @cached_property
    def unasked(self) -> list[str]:
        """The functions it offers that no paper defines, and that only `--ours` tests."""
        others = sorted(set(reference.__all__) - self.wanted)
        return [n for n in others if not is_record(n) and hasattr(self.module, n)]

    @cached_property
    def misspelt(self) -> dict[str, str]:
        """Its public functions with a name similar to a lacking one, and that name."""
        lacked = {name.replace("_", "").lower(): name for name in sorted(self.lacks)}
        found = {}
        for name in dir(self.module):
            if not name.startswith("_") and name not in reference.__all__:
                plain = name.replace("_", "").lower()  # `hubMask` and `hub_mask` become equal
                near = get_close_matches(plain, lacked, n=1, cutoff=NEAR)
                if near and is_own_function(getattr(self.module, name, None), self.module):
                    found[name] = lacked[near[0]]
        return found

    @cached_property
    def own(self) -> record_conversion.Own:
        """Its own record types, which it receives as arguments and may return."""
        return {} if self.ours else record_conversion.own_records(self.module)

    def refuses(self, says: str, error: type[Exception] = ValueError) -> Any:
        """Return a context that expects an error; the message matters for our own modules alone."""
        kinds = error if self.ours else (TypeError, ValueError)
        return pytest.raises(kinds, match=(says or None) if self.ours else None)

    def offers(self, names: Iterable[str]) -> bool:
        """Whether it has all of these public names, and the run tests them."""
        return self.wanted - self.lacks >= set(names)

    def lacks_part(self, names: frozenset[str]) -> frozenset[str]:
        """Return those of the names that it lacks, if it offers the others."""
        missing = names & self.lacks
        return missing if missing < names and self.offers(names - missing) else frozenset()

    def is_asked(self, names: Iterable[str]) -> bool:
        """Whether one of these names is judged, and listed in the module's `changed` if it has one.

        A module of variants lists in `changed` the functions that are not the reference's.
        """
        changed = getattr(self.module, "changed", self.judged)
        return not (changed & self.judged).isdisjoint(names)

    def has_own(self, name: str) -> bool:
        """Whether a function or record is the module's own, not the reference's object.

        Our layers wrap the reference's functions. A wrapper in another module may change results.
        """
        if is_record(name):
            return getattr(reference, name) in self.own
        bodies = import_module("optimized.vector") if self.name == "optimized" else self.module
        body, spec = getattr(bodies, name), getattr(reference, name)
        return unwrap(body) is not unwrap(spec) if self.ours else body is not spec

    @property
    def checks_arguments(self) -> bool:
        """Whether calls validate their arguments: the bodies behind `optimized` do not."""
        return not self.name.startswith("optimized.")

    @property
    def is_interpreted(self) -> bool:
        """Whether kernels run in Triton's interpreter, which takes half a millisecond a program."""
        return self.name == "optimized.kernels" and self.device.type == "cpu"

    def snippet(self, name: str, inputs: dict[str, Any]) -> str:
        """Return text to paste that makes one call: a program, or a line for a shell."""
        if self.program:
            return self.program.snippet(name, inputs)
        return snippet(self.name, self.own, name, inputs)

    def __getattr__(self, name: str) -> Any:
        """Return a public function of the module, or its record, else the specification's record.

        Calls are recorded. Inputs move to the device and become the module's own records; results
        are converted back.
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
            found = record_calls(self, name, self.converting(name, found))
        vars(self)[name] = found
        return found

    def converting(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return `function` wrapped: its device, the module's records, and the time limit apply.

        A `NotImplementedError` with a message says what the module does not support; without one
        it is a gap. What is no `Exception`, such as `SystemExit` or a skip, is a crash.
        """
        # a move to the device would copy a storage once for each tensor that shares it
        here = self.device.type == "cpu" or name == "stored_bytes"
        hint = record_conversion.hints_of(name).get("return")
        if here and self.ours:
            return function

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            given = (args, kwargs) if here else move_to_device((args, kwargs), self.device)
            given = record_conversion.to_module_records(given, self.own) if self.own else given
            if self.program:
                self.program.restart_if_ended()
            try:
                with nullcontext() if self.ours else self.limit.on(name):
                    found = function(*given[0], **given[1])
            except NotImplementedError as error:
                if self.ours or not str(error):
                    raise
                raise NotSupported(str(error)) from error
            except (Exception, KeyboardInterrupt, Alarm, NotSupported, LeftOut):
                raise
            except BaseException as error:
                raise RuntimeError(f"raised {type(error).__name__}: {error}") from error
            result = record_conversion.from_module_records(found, hint, self.own)
            return result if here else move_to_device(result, torch.device("cpu"))

        return call

    def __repr__(self) -> str:
        return self.name


def is_stub(function: Any) -> bool:
    """Whether a function has no body yet: `raise NotImplementedError`, `pass` or `...` alone."""
    try:
        (node,) = ast.parse(dedent(getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):  # no source, or that of an expression
        return False
    if not isinstance(node, ast.FunctionDef):
        return False
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    lines = {ast.unparse(statement).partition("(")[0] for statement in body}
    return lines <= {"raise NotImplementedError", "pass", "..."}


def is_own_function(value: Any, module: Any) -> bool:
    """Whether a value is callable and defined in the package of the module."""
    home, defined = getattr(module, "__name__", ""), getattr(value, "__module__", None) or ""
    same = home not in sys.modules or home.partition(".")[0] == defined.partition(".")[0]
    return callable(value) and same


def move_to_device(value: Any, device: torch.device) -> Any:
    """Move the tensors in nested tuples, lists and dictionaries to `device`.

    Strides and storage offsets stay the same, since kernels depend on them.
    """

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        layout = tensor.shape, tensor.stride(), tensor.storage_offset()
        length = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor.as_strided((length,), (1,), 0).to(device).as_strided(*layout)

    return mapped(moved, value)


def under_test(item: pytest.Item) -> Implementation | None:
    """Return the implementation that a collected test runs against, or None."""
    callspec = getattr(item, "callspec", None)
    impl = callspec.params.get("impl") if callspec else None
    return impl if isinstance(impl, Implementation) else None  # pytest fills in an empty list
