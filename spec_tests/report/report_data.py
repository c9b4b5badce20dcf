"""The report as data: the functions of each module, their failures by cause, and the equations."""

import platform
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.metadata import version
from itertools import groupby, takewhile
from typing import Any

import pytest
import torch

from spec_tests.implementation import Implementation
from spec_tests.index import ROOT, equations, source_equations
from spec_tests.options import LEVELS, PAPERS
from spec_tests.report.fault_diagnosis import KIND, KINDS, LAW, VALUES
from spec_tests.report.tex import tex_equations
from spec_tests.tests_by_function import NEEDS, OF_LEVEL, ORDER, Tests, run_state_by_kind

FORMAT = 2
"""Version of `report.schema.json`, raised by every incompatible change."""
EDGES = {
    "empty": " on empty input",
    "layout": " where memory is not contiguous",
    "gradients": " where gradients are asked for",
    "single": " where an axis has one element",
    "negative zero": " at −0",
    "dtype": " at another dtype than float32",
    "range": " at very large or small numbers",
    "ties": " where numbers tie",
}
UNEXPECTED = "[XPASS(strict)] "
"""Start of pytest's message on a test that passes although it was expected to fail."""
MOST = 2
"""Largest number of mutants named as likely causes of a failure; with more, none is named."""
Data = dict[str, Any]
"""A part of the report, as JSON: a claim, a failure with its claims, the card of a function."""


def build_report(
    stats: dict[str, list[Any]], impls: list[Implementation], existing: Tests, config: pytest.Config
) -> Data:
    """Return the whole report, made from test reports, which xdist sends between processes."""
    seen = defaultdict(list)
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for test in stats.get(outcome, []):
            said = dict(getattr(test, "user_properties", ()))  # a collection error has none
            if "impl" in said:
                seen[said["impl"]].append((test, outcome, said))
    level = str(config.getoption("--level"))
    return {
        "format": FORMAT,
        "suite": {"name": "kvspec", "version": suite_version()},
        "python": platform.python_version(),
        "torch": torch.__version__,
        "level": level,
        "modules": [module_report(impl, seen[impl.name], existing, level) for impl in impls],
    }


def suite_version() -> str:
    """Return the version of the suite, as it is checked out or installed."""
    file = ROOT / "pyproject.toml"
    if not file.exists():
        return version("kvspec")
    return tomllib.loads(file.read_text())["project"]["version"]


def module_report(
    impl: Implementation, tests: list[tuple[Any, str, Data]], existing: Tests, level: str
) -> Data:
    """Return the report of one module."""
    offered = impl.offered
    found = [
        claim | {"expected_to_fail": getattr(test, "wasxfail", None)}
        for test, _, said in tests
        for claim in said.get("claims", [])
    ]
    wrong = {
        claim["function"] for claim in found if not claim["follows"] and claim["level"] != "errors"
    }
    for claim in found:
        claim["follows"] = [name for name in claim["follows"] if name in wrong]
    counts, marks = defaultdict(Counter[str]), defaultdict(set[int])
    ran, idle, unsupported = Counter(), Counter(), Counter[str]()
    for test, outcome, said in tests:
        partial = "unsupported" in said
        skipped = outcome == "skipped" and partial
        for name in said["asks"]:
            of = impl.name, name, said["kind"]
            counts[name][outcome] += 1
            ran[of] += "left_out" not in said
            idle[of] += skipped or "::test_signature[" in test.nodeid
            unsupported[name] += skipped
        # a test that fails at an edge passed the level `values`
        failed = [LEVELS.index(claim["level"]) for claim in said.get("claims", [])]
        passed = len(LEVELS) if outcome == "passed" else min(failed, default=0)
        for spec in said["spec"]:
            marks[spec].add(0 if partial else passed)
    ran = Counter({of: n for of, n in ran.items() if n > idle[of]})
    states = {name: run_state_by_kind(existing, ran, impl.name, name) for name in offered}
    functions = [function_card(name, counts[name], found, states[name], level) for name in offered]
    texts = {test.nodeid: str(getattr(test, "longrepr", "")) for test, *_ in tests}
    mended = [
        {"test": test, "reason": text.removeprefix(UNEXPECTED)}
        for test, text in texts.items()
        if text.startswith(UNEXPECTED)
    ]
    judged = judgements(found, functions, marks, level)
    judged = {spec: said for spec, said in judged.items() if spec.startswith(impl.paper)}
    not_asked: dict[str, dict[str, int]] = {spec: {} for spec in judged}
    for (module, spec, needs), number in sorted(existing.items()):
        if module == impl.name and spec in judged and needs.startswith(NEEDS):
            not_asked[spec][needs.removeprefix(NEEDS)] = number
    return {
        "module": impl.name,
        "tests": dict(Counter(outcome for _, outcome, _ in tests)),
        "equations": judged,
        "not_asked": {spec: laws for spec, laws in not_asked.items() if laws},
        "left_out": dict(Counter(said["left_out"] for *_, said in tests if "left_out" in said)),
        "unsupported": {name: number for name, number in unsupported.items() if number},
        "functions": functions,
        "elsewhere": group_by_cause(claim for claim in found if claim["function"] not in offered),
        "mended": mended,
        "lacks": sorted(impl.lacks & impl.judged),
        "misspelt": impl.misspelt,
        "unasked": impl.unasked,
    }


def judgements(
    found: list[Data], functions: list[Data], marks: dict[str, set[int]], level: str
) -> dict[str, Data]:
    """Return the verdict of each equation at each level.

    `marks` holds, for each equation, the number of levels that each of its tests passed.
    """
    levels = LEVELS[: LEVELS.index(level) + 1]
    columns = {card["function"]: verdicts(card, level) for card in functions}
    bad, good = {}, {*columns}
    for part in levels:
        claims = [claim for claim in found if claim["level"] == part]
        failing = {name for name, said in columns.items() if said[part] == "fails"}
        good -= failing
        # tests of refusals are marked with no equation
        lenient = {spec for name in failing for spec in source_equations(name)}
        bad[part] = lenient if part == "errors" else failing_equations(claims, good)
    stated: dict[str, list[str]] = defaultdict(list)
    for card in functions:
        for spec in source_equations(card["function"]) if card["passed"] + card["failed"] else ():
            stated[spec].append(card["function"])
    judged = {}
    for spec in sorted({*marks, *stated}.union(*bad.values()), key=equation_sort_key):
        reached = max(marks[spec], default=0)
        judged[spec] = dict.fromkeys(LEVELS) | {
            part: verdict(
                spec in bad[part], [columns[n][part] for n in stated[spec]], reached > rank
            )
            for rank, part in enumerate(levels)
        }
    return judged


def verdict(bad: bool, columns: list[str], passed: bool) -> str:
    """Return the verdict of an equation at a level.

    It depends on whether a failure counts against it and whether a test of it passed, and on the
    verdicts of the functions that state it.
    """
    if bad:
        return "fails"
    if {"in part", "not run"} & {*columns}:
        return "in part" if {*columns} - {"not run"} else "not run"
    return "passes" if passed and "–" not in columns else "untested"


def failing_equations(found: Iterable[Data], good: Iterable[str]) -> set[str]:
    """Return the equations that fail.

    A failing law counts against the equations that it is marked with and the function at fault
    states. Agreement tests are marked with none. Where they alone fail, the equations of the
    function fail that no passing function in `good` states.
    """
    claims, bad = defaultdict(list), set[str]()
    passing = {spec for name in good for spec in source_equations(name)}
    for claim in found:
        if not claim["follows"] and (claim["equations"] or claim["level"] != "errors"):
            claims[claim["function"]].append(claim)
    for name, mine in claims.items():
        borne = {spec for claim in mine for spec in claim["equations"]}
        stated = set(source_equations(name)) if name else set[str]()
        bad |= borne & stated or stated - passing or stated or borne
    return bad


def equation_sort_key(spec: str) -> list[Any]:
    """Return a sort key that orders equations by number: 9 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", spec)]


def function_card(
    name: str, counts: Counter[str], found: list[Data], tests: dict[str, str], level: str
) -> Data:
    """Return the card of a function: its equations, its verdict and its failures."""
    mine = group_by_cause(claim for claim in found if claim["function"] == name)
    made = {
        "function": name,
        "equations": [equation_entry(spec) for spec in source_equations(name)],
        "printed": tex_equations(name),
        "tests": tests,
        "passed": counts["passed"],
        "failed": len({claim["test"] for failure in mine for claim in failure["claims"]}),
        "failures": mine,
    }
    said = verdicts(made, level)
    reached = [*takewhile(lambda part: said[part] == "passes", said)]
    whole = "passes" if len(reached) == len(said) else "in part"
    return made | {
        "verdict": "fails" if mine else whole if counts["passed"] else "untested",
        "reached": reached[-1] if reached else None,
    }


def verdicts(card: Data, level: str) -> dict[str, str]:
    """Return the verdict of a function at each level; `edges` is not judged if `values` fails."""
    bad = {failure["level"] for failure in card["failures"]}
    said = {}
    for part in LEVELS[: LEVELS.index(level) + 1]:
        states = {card["tests"].get(kind, "") for kind in OF_LEVEL[part]} - {""}
        if part in bad:
            said[part] = "fails"
        elif part == "edges" and "values" in bad:
            said[part] = "–"
        elif states == {"run"}:
            said[part] = "passes"
        else:
            said[part] = "in part" if states - {"not run"} else "not run"
    return said


def equation_entry(spec: str) -> dict[str, str]:
    """Return an equation with its title and its section."""
    title, where = (equations()[spec][field] for field in ("title", "where"))
    return {"id": spec, "title": title, "where": f"{spec.partition('-')[0]} {where}"}


def group_by_cause(found: Iterable[Data]) -> list[Data]:
    """Return the claims grouped into one failure for each cause, smallest input first."""

    def cause(claim: Data) -> tuple[bool, int, int, str]:
        level, kind = LEVELS.index(claim["level"]), KINDS.index(claim["kind"])
        return bool(claim["follows"]), level, kind, claim["edge"]

    made: list[Data] = []
    for _, group in groupby(sorted(found, key=cause), cause):
        claims = sorted(group, key=reading_order)
        first = claims[0]
        shown = [
            {k: v for k, v in claim.items() if k not in APART}
            | {"equations": [equation_entry(spec) for spec in claim["equations"]]}
            for claim in claims
        ]
        for other in made:
            if not first["follows"] and not other["follows"] and is_same_cause(first, other):
                other["claims"] += shown
                break
        else:
            made.append(
                {
                    "heading": first["kind"] + EDGES.get(first["edge"], ""),
                    "kind": first["kind"],
                    "edge": first["edge"] or None,
                    "level": first["level"],
                    "follows": sorted({name for claim in claims for name in claim["follows"]}),
                    "causes": likely_mutants(claims),
                    "claims": shown,
                }
            )
    return made


def is_same_cause(claim: Data, failure: Data) -> bool:
    """Whether a claim needs no heading beside a failure of the same function.

    The failure's likely cause gives the result of the claim, too; or the claim is a broken law
    beside a wrong result.
    """
    if claim["kind"] == LAW:
        return failure["kind"] in (VALUES, KIND)
    return claim["kind"] in (VALUES, KIND) and not {*failure["causes"]}.isdisjoint(claim["lies"])


GENERIC = ("test_agrees", "test_calling_convention", "test_gives_the_results")
"""Prefixes of the names of tests that compare with the reference and state no law."""


def reading_order(claim: Data) -> tuple[bool, bool, bool, float, int]:
    """Return a sort key: finite before infinite inputs, then few numbers, then laws and digits."""
    generic = any(f"::{name}" in claim["test"] for name in GENERIC)
    snippet = claim["snippet"]
    size = snippet.count(",") * (1.5 if generic else 1)
    return not snippet, claim["vacuous"], "inf" in snippet, size, len(snippet)


APART = ("lies", "kind", "edge", "level", "function", "vacuous", "follows")


def likely_mutants(claims: list[Data]) -> list[str]:
    """Return the mutants that match the shown input and more than half of all inputs."""
    matches = Counter(mutant for claim in claims for mutant in claim["lies"])
    inputs = sum(bool(claim["snippet"]) for claim in claims)
    best = max(matches.values(), default=0)
    named = [mutant for mutant in claims[0]["lies"] if matches[mutant] == best]
    return named if len(named) <= MOST and 2 * best > inputs else []


def lines_by_paper(seen: dict[str, Data]) -> list[str]:
    """Return, for each paper, lines with the failing equations and the number that pass.

    The level `values` decides. Failures at other levels are listed in a line of their own. An
    equation is not judged if all of its tests fail by another equation's function.
    """
    lines = []
    for name in PAPERS.values():
        mine = {i: said for i, said in seen.items() if i.startswith(f"{name}-")}
        of = {
            (part, end): [i for i, said in mine.items() if said[part] == end]
            for part in LEVELS
            for end in ("passes", "fails", "in part", "not run", "untested")
        }
        if not mine:
            continue
        bad = ", ".join(f"{i} fails" for i in of["values", "fails"])
        parts = [bad] if bad else []
        parts.append(f"{len(of['values', 'passes'])} of {len(mine)} equations offered pass")
        if part := of["values", "in part"] + of["values", "not run"]:
            parts.append(f"not all tests were run of {', '.join(part)}")
        if unjudged := of["values", "untested"]:
            why = ", since others fail" if bad else ""
            parts.append(f"not judged{why}: {', '.join(unjudged)}")
        beside = [f"{part}: {', '.join(ids)}" for part in LEVELS[1:] if (ids := of[part, "fails"])]
        lines.append(f"{name}: {'; '.join(parts)}")
        lines += [f"{name} also fails at {'; at '.join(beside)}"] if beside else []
    return lines


def lines_on_misspelt_names(misspelt: dict[str, str]) -> list[str]:
    """Return a line for each function whose name resembles one of the specification."""
    return [f"unknown name {n}: did you mean {meant}?" for n, meant in misspelt.items()]


def lines_on_tests_not_run(module: Data) -> list[str]:
    """Return lines with what was not asked: laws, calls, and kinds of tests of which functions."""
    functions = [card for card in module["functions"] if card["verdict"] != "untested"]
    lines = [f"left out {n} of its tests: {why}" for why, n in module["left_out"].items()]
    for spec, laws in module["not_asked"].items():
        said = [
            f"{n} law{'s need' if n > 1 else ' needs'} {names_or_count(names.split(', '))}"
            for names, n in laws.items()
        ]
        lines.append(f"not asked of {spec}: {'; '.join(said)}")
    if module["unsupported"]:
        said = [f"{name} ({number})" for name, number in module["unsupported"].items()]
        lines.append(f"skipped as not supported, tests of {', '.join(said)}")
    for state in ("not run", "in part"):
        of = {
            kind: [card["function"] for card in functions if card["tests"].get(kind) == state]
            for kind in ORDER
        }
        said = [f"{kind} ({names_or_count(names)})" for kind, names in of.items() if names]
        lines += [f"{state}: {', '.join(said)}"] if said else []
    return lines


def names_or_count(names: list[str]) -> str:
    """Return up to three names, and the number of further ones."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
