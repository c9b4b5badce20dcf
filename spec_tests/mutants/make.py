"""How a lie is made: the reference, or a kernel, with one line of its text changed."""

from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, NamedTuple

import reference
from reference.contract import guarded
from spec_tests.mutants.patch import kernel_text, patched, relaunched, text


class Mutant(NamedTuple):
    """One wrong implementation."""

    place: str  # the file whose text it changes
    lie: str  # what it gets wrong
    killer: str  # the end of the id of the law or vector that must fail
    module: Any


MUTANTS: dict[str, Mutant] = {}


def lies(idea: str) -> Callable[[str, str, str, str, str], None]:
    """Return a function that registers lies about one idea: `hubkv/discount`.

    `lie(name, says, old, new, killer)` is the reference in which the text `old`, which stands in
    the idea's file exactly once, reads `new`. The killer is a law of the idea, or `vector:ID`.
    """
    file = f"{idea}.py"

    def lie(name: str, says: str, old: str, new: str, killer: str) -> None:
        count = text(file).count(old)
        assert count == 1, f"stale: {old!r} stands {count} times in reference/{file}"
        module = Changed(partial(patched, file, old, new))
        add(name, Mutant(file, says, place(idea, killer), module))

    return lie


def kernel_lies(
    file: str, block: int = 8, programs: int | None = None
) -> Callable[[str, str, str, str, str], None]:
    """Return a function that registers lies about kernels in one file: `hubkv/refine.py`.

    `lie(name, says, old, new, killer)` is `optimized`, as it runs on a GPU, with the text `old` of
    the file reading `new`, in Triton's interpreter. A program owns a `block` of elements, so that
    small inputs take several; or one of so few `programs` that it owns several tiles. The killer is
    the place of a law of any idea, or `vector:IDEA-ID`.
    """

    def lie(name: str, says: str, old: str, new: str, killer: str) -> None:
        count = kernel_text(file).count(old)
        assert count == 1, f"stale: {old!r} stands {count} times in optimized/kernels/{file}"
        idea, _, case = killer.removeprefix("vector:").partition("-")
        killer = place(idea, f"vector:{case}") if killer.startswith("vector:") else killer
        module = Changed(partial(relaunched, file, old, new, block, programs))
        add(name, Mutant(f"kernels/{file}", says, killer, module))

    return lie


def place(idea: str, killer: str) -> str:
    """Return the end of a killer's id: a worked vector, a law of the idea, or one elsewhere."""
    if killer.startswith("vector:"):
        case = killer.removeprefix("vector:")
        return f"test_vectors.py::test_vector[{idea.rpartition('/')[2]}-{case}]"
    return killer if "::" in killer else f"{idea}/test_laws.py::{killer}"


def add(name: str, made: Mutant) -> None:
    """Register a lie."""
    assert name not in MUTANTS, f"two mutants are called {name}"
    made.module.is_killed_by = partial(ends, made.killer.partition("[")[0])
    MUTANTS[name] = made


class Changed:
    """The names of a changed text, made when one is first asked for."""

    def __init__(self, make: Callable[[], dict[str, Any]]):
        self.make, self.names = make, dict[str, Any]()

    def __dir__(self) -> list[str]:
        return reference.__all__

    def __getattr__(self, name: str) -> Any:
        """Return a public name behind its contract."""
        if name not in reference.__all__:
            raise AttributeError(name)
        self.names = self.names or self.make()
        made = self.names[name]
        setattr(self, name, guarded("reference", made) if isfunction(made) else made)
        return vars(self)[name]


def ends(place: str, nodeid: str) -> bool:
    """Whether `nodeid`, up to its parameters, names the test at `place`."""
    return nodeid.partition("[")[0].endswith(place)
