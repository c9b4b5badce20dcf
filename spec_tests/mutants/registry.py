"""Register mutants: the reference, or a kernel, with one change to its source.

A mutant is written under the law or vector that must detect it:

    test_protected_tokens_read_one
      raw_where_protected: protected tokens keep their raw score
      - refined.masked_fill(protected, 1)
      + torch.where(protected, scores, refined)

Lines without a sign occur in the source before and after the change.
"""

import re
from collections.abc import Callable, Iterator
from functools import partial
from inspect import isfunction
from pathlib import Path
from typing import Any

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


class Mutant:
    """A module under test with one mistake, built at the first access.

    Args:
        place: the changed file.
        fault: the mistake, in words.
        detected_by: the end of the detecting test's id.
        make: a function that returns the public names of the changed source.
    """

    def __init__(self, place: str, fault: str, detected_by: str, make: Callable[[], Any]):
        self.place, self.fault, self.detected_by = place, fault, detected_by
        self.make, self.names = make, dict[str, Any]()

    def is_detected_by(self, nodeid: str) -> bool:
        """Whether a test, or one of its cases, is the mutant's detecting test."""
        (test, _, case), (file, _, given) = (x.partition("[") for x in (self.detected_by, nodeid))
        return file.endswith(test) and (not given or case.rstrip("]") in given)

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

    def register(changes: str) -> None:
        for name, fault, old, new, test in changes_of(changes, ROOT / file):
            make = partial(patched_reference, file, old, new)
            add(name, Mutant(file, fault, test_id(idea, test), make))

    return register


def register_kernel_mutants(file: str, block: int = 8, programs: int | None = None) -> Register:
    """Return a function that registers mutants of the kernels in a file, such as `hubkv/refine.py`.

    Each is `optimized` as it runs on a GPU, with one change to the file, in Triton's interpreter.
    Without Triton none is registered.

    Args:
        file: a file in `optimized/kernels`.
        block: elements of one program; few, so that small inputs need several programs.
        programs: number of programs; few, so that each handles several tiles.
    """

    def register(changes: str) -> None:
        for name, fault, old, new, test in changes_of(changes, KERNELS / file):
            idea, _, case = test.removeprefix("vector:").partition("-")
            test = test_id(idea, f"vector:{case}") if test.startswith("vector:") else test
            make = partial(patched_kernels, file, old, new, block, programs)
            if TRITON:
                add(name, Mutant(f"kernels/{file}", fault, test, make))

    return register


def changes_of(changes: str, file: Path) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield name, fault, old source, new source and detecting test of each mutant of a text."""
    rest = DETECTING_TEST.sub(lambda found: CHANGE.sub("", found[2]), changes)
    assert not rest.strip(), f"this is no mutant under its detecting test: {rest!r}"
    for test, mutants in DETECTING_TEST.findall(changes):
        for name, fault, change in CHANGE.findall(mutants):
            lines = change.splitlines()
            old, new = ("\n".join(x[4:] for x in lines if x[2] in (" ", sign)) for sign in "-+")
            count = text(file).count(old)
            assert count == 1, f"stale: {old!r} stands {count} times in {file}"
            yield name, fault, old, new, test


def test_id(idea: str, test: str) -> str:
    """Return the end of the id of a vector, of a law of the idea, or of a law elsewhere."""
    if test.startswith("vector:"):
        case = test.removeprefix("vector:")
        return f"test_vectors.py::test_vector[{idea.rpartition('/')[2]}-{case}]"
    return test if "::" in test else f"{idea}/test_laws.py::{test}"


def add(name: str, made: Mutant) -> None:
    """Register a mutant."""
    assert name not in MUTANTS, f"two mutants are called {name}"
    MUTANTS[name] = made
