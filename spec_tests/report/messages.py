"""The claim of a failed test as a sentence, with a minimal failing call and its likely cause.

The cause is a mutant with the same results, or a function that the specification calls. A result
follows from these functions if the specification gives it too, when it calls the module's versions.
"""

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib import import_module
from inspect import isfunction, unwrap
from types import CodeType
from typing import Any
from unittest.mock import patch

import pytest

import reference
from spec_tests.accuracy import are_equal
from spec_tests.implementation import Implementation
from spec_tests.index import HERE
from spec_tests.limits import DoesNotEnd, Limit
from spec_tests.report import fault_diagnosis
from spec_tests.report.calls import UNFAULTED, Call
from spec_tests.report.fault_diagnosis import CHANGES, KIND, LAW, NEVER, VALUES, Fault, explains
from spec_tests.report.literals import first_difference, result_as_text
from spec_tests.report.shrink import shrink_fault
from spec_tests.tests_by_function import VECTORS, functions_of_test, kind_of, text

ANSWERS = "gives the reference's answer"
SENTENCES = {
    "test_signature": "has the parameters and defaults of the specification",
    "test_agrees_with_reference": ANSWERS,
    "test_agrees_where_draws_seldom_get": ANSWERS,
    "test_calling_convention": "follows its annotations, leaves inputs unchanged, takes any layout",
    "test_the_good_input_is_accepted": "accepts a good call",
}
WRONG = (VALUES, KIND, fault_diagnosis.CRASH)
"""Faults that may follow from another function, and whose input is shrunk."""
SECONDS = 10.0
"""Processor time of the search for a mutant."""
COPIED = ("layout", "gradients")
"""Properties of the passed tensors that copies lose."""


def failure_claims(
    impl: Implementation, item: Any, faults: Iterable[tuple[BaseException, Fault | None]]
) -> Iterator[dict[str, Any]]:
    """Yield the claim of a failed test, once for each distinct failure."""
    called = [name for name in reference.__all__ if name in functions_of_test(item)]
    home = ".".join(item.path.parent.parts[-2:])
    own = [name for name in called if unwrap(getattr(reference, name)).__module__.endswith(home)]
    for error, fault in faults:
        fault = fault or Fault(LAW, "", None)
        call = fault.call
        name = call.name if call else (own or called or [""])[0]
        kind = fault_diagnosis.SIGNATURE if item.originalname == "test_signature" else fault.kind
        generic = item.originalname in SENTENCES and kind in (*WRONG, *fault_diagnosis.UNANSWERED)
        claim = {
            "test": item.nodeid,
            "claim": vars(error).get("claim") or (ANSWERS if generic else sentence(item)),
            "equations": equations_of(item),
            "function": name,
            "kind": VALUES if kind == LAW and kind_of(item.path) == VECTORS else kind,
            "edge": fault.edge,
            "level": fault.level,
            "vacuous": fault.vacuous,
            "message": result_as_text(error),
            **dict.fromkeys(("where", "snippet", "expected", "got", "hunts"), ""),
            **{"lies": [], "follows": []},
        }
        with suppress(Exception):  # a third-party result may not even have a repr
            claim |= evidence_of(impl, item, call, fault, kind) if call else {}
        yield claim


def evidence_of(
    impl: Implementation, item: Any, call: Call, fault: Fault, kind: str
) -> dict[str, Any]:
    """Return a call at fault as a program, with the actual and expected results and causes."""
    after = (
        explaining_steps(call) if kind in WRONG else timed_out_steps(call) if kind == NEVER else []
    )
    if kind in WRONG and fault.edge not in COPIED and item.originalname != "test_vector":
        fault = shrink_fault(fault, call)
        call = fault.call or call
    theirs, path, expected = call.outcome, "", fault.expected
    if kind in (CHANGES, LAW):
        theirs = call.passed if kind == CHANGES else fault.got
    if kind not in (*fault_diagnosis.ERRORS, CHANGES, *fault_diagnosis.UNANSWERED):
        path, expected, theirs = first_difference(expected, theirs, are_equal)
    inputs = call.passed if fault.edge in COPIED else call.inputs
    wrong, vector = kind in (VALUES, KIND), item.callspec.params.get("case", {})
    return {
        "snippet": impl.snippet(call.name, inputs),
        "where": path,
        "expected": result_as_text(expected) if kind != LAW or fault.expected is not None else "",
        "got": result_as_text(theirs),
        "hunts": vector.get("hunts", "") if wrong or kind == LAW else "",
        "lies": matching_mutants(call) if wrong and not after else [],
        "follows": after,
    }


def sentence(item: Any) -> str:
    """Return the claim of a test: its name as a sentence."""
    params, name = item.callspec.params, item.originalname
    if name == "test_refuses":
        return f"refuses a bad `{params['argument']}`"
    if name == "test_vector":
        return f"vector: {params['case']['id'].replace('-', ' ')}"
    return SENTENCES.get(name) or name.removeprefix("test_").replace("_", " ")


def equations_of(item: pytest.Item) -> list[str]:
    """Return the ids of the equations that a test is marked with."""
    return sorted({spec for mark in item.iter_markers("spec") for spec in mark.args})


def matching_mutants(call: Call) -> list[str]:
    """Return the faults of the mutants that give the same outcome as a call.

    Mutants of the function come first, else those of functions that its specification calls, as far
    as `SECONDS` go. On small input many mutants match by chance. A mutant is excluded if it is
    wrong on a call that the module gets right.
    """
    right = [c for calls in UNFAULTED[call.name].values() for c in calls if c.impl is call.impl]
    expected = fault_diagnosis.outcome_of(getattr(reference, call.name), call.inputs)
    found: list[str] = []
    with suppress(DoesNotEnd), Limit(SECONDS).on(call.name):
        for homes in ([call.name], steps(call.name)):
            mutants = dict.fromkeys(mutant for name in homes for mutant in mutants_about(name))
            for fault, module in () if found else mutants:
                mutant = getattr(module, call.name)
                if explains(mutant, call, right=expected) and all(
                    explains(mutant, other)
                    or fault_diagnosis.fault_kind(other.name, other.inputs, other.outcome)
                    for other in right
                ):
                    found.append(fault)
    return found


@cache
def mutants_about(name: str) -> list[tuple[str, Any]]:
    """Return fault and module of the mutants of the file that defines a function."""
    home = unwrap(getattr(reference, name)).__module__.removeprefix("reference.").replace(".", "/")
    for file in HERE.rglob("mutants.py"):
        if f'register_mutants("{home}")' in text(file):
            import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))
    from spec_tests.mutants.registry import MUTANTS

    homes = (f"{home}.py", name)
    return [(mutant.fault, mutant) for mutant in MUTANTS.values() if mutant.place in homes]


def explaining_steps(call: Call) -> list[str]:
    """Return the steps that explain a call's outcome: the specification with them gives it.

    Steps that suffice alone come before all of them together.
    """
    names = [name for name in steps(call.name) if call.impl and call.impl.offers([name])]
    if not names or not is_explained(call, names):
        return []
    alone = [name for name in names if is_explained(call, [name])]
    return alone or names


def timed_out_steps(call: Call) -> list[str]:
    """Return the steps that exceeded the time limit in the module under test."""
    strikes = call.impl.limit.strikes if call.impl else {}
    return [name for name in steps(call.name) if name in strikes]


def is_explained(call: Call, names: list[str]) -> bool:
    """Whether the specification with the module's functions `names` gives a call's outcome."""
    with calling_module_functions(call.impl, names):
        return explains(getattr(reference, call.name), call, sys.maxsize)


@cache
def steps(name: str) -> list[str]:
    """Return the public functions that a function of the specification calls, also indirectly."""
    seen, waiting = set[Any](), [unwrap(getattr(reference, name))]
    while waiting:
        here = waiting.pop()
        called = [
            unwrap_cached_function(vars(sys.modules[here.__module__]).get(word))
            for word in names_read(here)
        ]
        found = {f for f in called if isfunction(f) and f.__module__.startswith("reference.")}
        waiting += found - seen
        seen |= found
    return [n for n in reference.__all__ if n != name and unwrap(getattr(reference, n)) in seen]


def names_read(function: Any) -> Iterator[str]:
    """Yield the names that a function's body reads."""
    waiting = [function.__code__]
    while waiting:
        code = waiting.pop()
        yield from code.co_names
        waiting += [part for part in code.co_consts if isinstance(part, CodeType)]


@contextmanager
def calling_module_functions(impl: Any, names: Iterable[str]) -> Iterator[None]:
    """Make the specification call the module's functions of these names."""
    own = {unwrap(getattr(reference, name)): getattr(impl, name) for name in names}
    with ExitStack() as stack:
        for home in [home for path, home in sys.modules.items() if path.startswith("reference.")]:
            for word, value in [*vars(home).items()]:
                if isfunction(function := unwrap_cached_function(value)) and function in own:
                    stack.enter_context(patch.object(home, word, own[function]))
        yield


def unwrap_cached_function(value: Any) -> Any:
    """Return a function without the cache around it."""
    return value.__wrapped__ if hasattr(value, "cache_parameters") else value
