"""How a lie is made: the reference, or a kernel, with one line of its text changed.

Lies are written under the law or vector that finds them out:

    test_protected_tokens_read_one
      raw_where_protected: protected tokens keep their raw score
      - refined.masked_fill(protected, 1)
      + torch.where(protected, scores, refined)

Lines without a sign stand in the text before and after.
"""

import re
from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, NamedTuple

import reference
from reference._validation.contract import guarded
from spec_tests.implementation import TRITON
from spec_tests.mutants.patch import kernel_text, patched, relaunched, text


class Mutant(NamedTuple):
    """One wrong implementation."""

    place: str  # the file whose text it changes
    lie: str  # what it gets wrong
    killer: str  # the end of the id of the law or vector that must fail
    module: Any


MUTANTS: dict[str, Mutant] = {}


KILLER = re.compile(r"(\S.*)\n((?:  .*\n)+)")
LIE = re.compile(r"  (\w+): (.*)\n((?:  [-+ ](?: .*)?\n)+)")
Tell = Callable[[str], None]


def lies(idea: str) -> Tell:
    """Return a function that registers the lies of a text about one idea: `hubkv/discount`.

    Each is the reference in which a text that stands in the idea's file exactly once reads
    otherwise. The killer is a law of the idea, or `vector:ID`.
    """
    file = f"{idea}.py"

    def lie(name: str, says: str, old: str, new: str, killer: str) -> None:
        count = text(file).count(old)
        assert count == 1, f"stale: {old!r} stands {count} times in reference/{file}"
        module = Changed(partial(patched, file, old, new))
        add(name, Mutant(file, says, place(idea, killer), module))

    return told(lie)


def kernel_lies(file: str, block: int = 8, programs: int | None = None) -> Tell:
    """Return a function that registers the lies of a text about kernels: `hubkv/refine.py`.

    Each is `optimized`, as it runs on a GPU, with a text of the file reading otherwise, in Triton's
    interpreter. A program owns a `block` of elements, so that small inputs take several; or one of
    so few `programs` that it owns several tiles. The killer is the place of a law of any idea, or
    `vector:IDEA-ID`. Without Triton there is none of them.
    """

    def lie(name: str, says: str, old: str, new: str, killer: str) -> None:
        count = kernel_text(file).count(old)
        assert count == 1, f"stale: {old!r} stands {count} times in optimized/kernels/{file}"
        idea, _, case = killer.removeprefix("vector:").partition("-")
        killer = place(idea, f"vector:{case}") if killer.startswith("vector:") else killer
        module = Changed(partial(relaunched, file, old, new, block, programs))
        if TRITON:
            add(name, Mutant(f"kernels/{file}", says, killer, module))

    return told(lie)


def told(lie: Callable[[str, str, str, str, str], None]) -> Tell:
    """Return a function that registers the lies of a text, each by a call of `lie`."""

    def tell(text: str) -> None:
        rest = KILLER.sub(lambda found: LIE.sub("", found[2]), text)
        assert not rest.strip(), f"this is no lie under its killer: {rest!r}"
        for killer, changes in KILLER.findall(text):
            for name, says, change in LIE.findall(changes):
                lie(name, says, side("-", change), side("+", change), killer)

    return tell


def side(sign: str, change: str) -> str:
    """Return the text of a change that stands before it, or after it."""
    return "\n".join(line[4:] for line in change.splitlines() if line[2] in (" ", sign))


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
