"""Register mutants: the reference, or a kernel, with one change to its source.

A mutant is written under the law or vector that must detect it:

    test_protected_tokens_read_one
      raw_where_protected: protected tokens keep their raw score
      - refined.masked_fill(protected, 1)
      + torch.where(protected, scores, refined)

Lines without a sign occur in the source before and after the change.
"""

import re
from collections.abc import Callable
from functools import partial
from inspect import isfunction
from typing import Any, NamedTuple

import reference
from reference.contract.enforce import enforce_contract
from spec_tests.implementation import TRITON
from spec_tests.mutants.patched_source import (
    KERNELS,
    ROOT,
    patched_kernels,
    patched_reference,
    text,
)


class Mutant(NamedTuple):
    """One wrong implementation."""

    place: str  # the changed file
    fault: str  # the mistake, in words
    detected_by: str  # the end of the detecting test's id
    module: Any


MUTANTS: dict[str, Mutant] = {}


DETECTING_TEST = re.compile(r"(\S.*)\n((?:  .*\n)+)")
CHANGE = re.compile(r"  (\w+): (.*)\n((?:  [-+ ](?: .*)?\n)+)")
Register = Callable[[str], None]


def register_mutants(idea: str) -> Register:
    """Return a function that registers the mutants of one idea, such as `hubkv/discount`.

    Each is the reference with one change. The changed source must occur exactly once in the idea's
    file. The detecting test is a law of the idea, or `vector:ID`.
    """
    file = f"{idea}.py"

    def mutant(name: str, fault: str, old: str, new: str, test: str) -> None:
        count = text(ROOT, file).count(old)
        assert count == 1, f"stale: {old!r} stands {count} times in reference/{file}"
        module = Changed(partial(patched_reference, file, old, new))
        add(name, Mutant(file, fault, test_id(idea, test), module))

    return text_register(mutant)


def register_kernel_mutants(file: str, block: int = 8, programs: int | None = None) -> Register:
    """Return a function that registers mutants of the kernels in a file, such as `hubkv/refine.py`.

    Each is `optimized` as it runs on a GPU, with one change to the file, in Triton's interpreter.
    Without Triton none is registered.

    Args:
        file: a file in `optimized/kernels`.
        block: elements of one program; few, so that small inputs need several programs.
        programs: number of programs; few, so that each handles several tiles.
    """

    def mutant(name: str, fault: str, old: str, new: str, test: str) -> None:
        count = text(KERNELS, file).count(old)
        assert count == 1, f"stale: {old!r} stands {count} times in optimized/kernels/{file}"
        idea, _, case = test.removeprefix("vector:").partition("-")
        test = test_id(idea, f"vector:{case}") if test.startswith("vector:") else test
        module = Changed(partial(patched_kernels, file, old, new, block, programs))
        if TRITON:
            add(name, Mutant(f"kernels/{file}", fault, test, module))

    return text_register(mutant)


def text_register(mutant: Callable[[str, str, str, str, str], None]) -> Register:
    """Return a function that calls `mutant` for each mutant of a text."""

    def register(text: str) -> None:
        rest = DETECTING_TEST.sub(lambda found: CHANGE.sub("", found[2]), text)
        assert not rest.strip(), f"this is no mutant under its detecting test: {rest!r}"
        for test, changes in DETECTING_TEST.findall(text):
            for name, fault, change in CHANGE.findall(changes):
                mutant(name, fault, one_side("-", change), one_side("+", change), test)

    return register


def one_side(sign: str, change: str) -> str:
    """Return the source of a change before it (`-`) or after it (`+`)."""
    return "\n".join(line[4:] for line in change.splitlines() if line[2] in (" ", sign))


def test_id(idea: str, test: str) -> str:
    """Return the end of the id of a vector, of a law of the idea, or of a law elsewhere."""
    if test.startswith("vector:"):
        case = test.removeprefix("vector:")
        return f"test_vectors.py::test_vector[{idea.rpartition('/')[2]}-{case}]"
    return test if "::" in test else f"{idea}/test_laws.py::{test}"


def add(name: str, made: Mutant) -> None:
    """Register a mutant."""
    assert name not in MUTANTS, f"two mutants are called {name}"
    made.module.detected_by = made.detected_by
    MUTANTS[name] = made


class Changed:
    """A module under test with the names of a changed source, built at the first access."""

    def __init__(self, make: Callable[[], dict[str, Any]]):
        self.make, self.names, self.detected_by = make, dict[str, Any](), ""

    def is_detected_by(self, nodeid: str) -> bool:
        """Whether a test, or one of its cases, is the mutant's detecting test."""
        (test, _, case), (place, _, given) = (x.partition("[") for x in (self.detected_by, nodeid))
        return place.endswith(test) and (not given or case.rstrip("]") in given)

    def __dir__(self) -> list[str]:
        return reference.__all__

    def __getattr__(self, name: str) -> Any:
        """Return a public name of the changed source, with argument checks."""
        if name not in reference.__all__:
            raise AttributeError(name)
        self.names = self.names or self.make()
        made = self.names[name]
        setattr(self, name, enforce_contract("reference", made) if isfunction(made) else made)
        return vars(self)[name]
