"""What a failed test claims, in words, with the least call that breaks it and its likely cause."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from inspect import unwrap
from typing import Any

import pytest

import reference
from spec_tests.accuracy import are_equal
from spec_tests.implementation import Implementation
from spec_tests.index import HERE
from spec_tests.report.calls import UNFAULTED, Call
from spec_tests.report.composed import follows, hanging, steps
from spec_tests.report.faults import (
    CHANGES,
    CRASH,
    ERRORS,
    KIND,
    LAW,
    NEVER,
    SIGNATURE,
    VALUES,
    Fault,
    explains,
    judged,
)
from spec_tests.report.literals import differing, shown, snippet
from spec_tests.report.shrink import least
from spec_tests.requirements import needs, text

ANSWERS = "gives the reference's answer"
SENTENCES = {
    "test_signature": "has the parameters and defaults of the specification",
    "test_agrees_with_reference": ANSWERS,
    "test_agrees_where_draws_seldom_get": ANSWERS,
    "test_calling_convention": "follows its annotations, leaves inputs unchanged, takes any layout",
    "test_the_good_input_is_accepted": "accepts a good call",
}
WRONG = (VALUES, KIND, CRASH)
"""What a step of a composition, or a part of the input, may be asked about."""
COPIED = ("layout", "gradients")
"""Properties of the tensors that are passed, and not of copies."""


def claims(
    impl: Implementation, item: Any, faults: Iterable[tuple[BaseException, Fault | None]]
) -> Iterator[dict[str, Any]]:
    """Yield what a failed test claims, once for each of its distinct failures."""
    for error, fault in faults:
        fault = fault or Fault(LAW, "", None)
        call = fault.call
        name = call.name if call else function_of(item)
        kind = SIGNATURE if item.originalname == "test_signature" else fault.kind
        generic = item.originalname in SENTENCES and kind in (*WRONG, NEVER)
        claim = {
            "test": item.nodeid,
            "claim": ANSWERS if generic else sentence(item),
            "equations": equations_of(item),
            "function": name,
            "kind": kind,
            "edge": fault.edge,
            "level": fault.level,
            "vacuous": fault.vacuous,
            "message": shown(error),
            "where": "",
            "snippet": "",
            "expected": "",
            "got": "",
            "hunts": "",
            "lies": [],
            "follows": [],
        }
        with suppress(Exception):  # others' results may be anything, and no text
            claim |= account(impl, item, call, fault, kind) if call else {}
        yield claim


def account(impl: Implementation, item: Any, call: Call, fault: Fault, kind: str) -> dict[str, Any]:
    """Return a call that is at fault as a program, with its answer, the right one, and causes."""
    after = follows(call) if kind in WRONG else hanging(call) if kind == NEVER else []
    if kind in WRONG and fault.edge not in COPIED and item.originalname != "test_vector":
        fault = least(fault, call)
        call = fault.call or call
    theirs, path, expected = call.outcome, "", fault.expected
    if kind not in (*ERRORS, LAW, CHANGES, NEVER):
        path, expected, theirs = differing(expected, theirs, are_equal)
    if kind in (CHANGES, LAW):
        theirs = call.passed if kind == CHANGES else fault.got
    inputs = call.passed if fault.edge in COPIED else call.inputs
    wrong = kind in (VALUES, KIND)
    return {
        "snippet": snippet(impl.name, impl.own, call.name, inputs),
        "where": path,
        "expected": shown(expected) if kind != LAW or fault.expected is not None else "",
        "got": shown(theirs),
        "hunts": item.callspec.params.get("case", {}).get("hunts", "") if wrong else "",
        "lies": lies_like(call) if wrong and not after else [],
        "follows": after,
    }


def sentence(item: Any) -> str:
    """Return the claim of a test: its name in words."""
    params, name = item.callspec.params, item.originalname
    if name == "test_refuses":
        return f"refuses a bad `{params['argument']}`"
    if name == "test_vector":
        return f"worked example: {params['case']['id'].replace('-', ' ')}"
    return SENTENCES.get(name) or name.removeprefix("test_").replace("_", " ")


def equations_of(item: pytest.Item) -> list[str]:
    """Return the ids of the equations that a test is marked with."""
    return sorted({spec for mark in item.iter_markers("spec") for spec in mark.args})


def function_of(item: Any) -> str:
    """Return the function that a test is about, where none of its calls is at fault."""
    asked = [name for name in reference.__all__ if name in needs(item)]
    home = ".".join(item.path.parent.parts[-2:])
    near = [name for name in asked if unwrap(getattr(reference, name)).__module__.endswith(home)]
    return (near or asked or [""])[0]


def lies_like(call: Call) -> list[str]:
    """Return the deliberate mistakes of the suite that give this call's very outcome.

    They are those about the function, or else about what the specification of it calls. Many do by
    chance, on little input: one that is wrong where the module is right is none.
    """
    right = [c for calls in UNFAULTED[call.name].values() for c in calls if c.impl is call.impl]
    found: list[str] = []
    for homes in ([call.name], steps(call.name)):
        lies = dict.fromkeys(lie for name in homes for lie in lies_about(name))
        for says, module in () if found else lies:
            lie = getattr(module, call.name)
            if explains(lie, call) and not any(missed(lie, other) for other in right):
                found.append(says)
    return found


def missed(lie: Callable[..., Any], call: Call) -> bool:
    """Whether a lie gives another outcome than a call, which is right."""
    return not explains(lie, call) and not judged(call.name, call.inputs, call.outcome)


@cache
def lies_about(name: str) -> list[tuple[str, Any]]:
    """Return the mistakes that the suite carries about the file that defines a function."""
    home = unwrap(getattr(reference, name)).__module__.removeprefix("reference.").replace(".", "/")
    for file in HERE.rglob("mutants.py"):
        if f'mutants_of("{home}")' in text(file):
            import_module(".".join(file.relative_to(HERE.parent).with_suffix("").parts))
    from spec_tests.mutants.make import MUTANTS

    places = (f"{home}.py", name)
    return [(mutant.fault, mutant.module) for mutant in MUTANTS.values() if mutant.place in places]
