"""The report as data: for each module its functions, their failures by cause, and its equations."""

import json
import platform
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from typing import Any

import pytest
import torch

import reference
from spec_tests.implementation import Implementation
from spec_tests.index import ROOT, equations, source
from spec_tests.records import is_record
from spec_tests.report import faults
from spec_tests.report.faults import LEVELS
from spec_tests.report.tex import printed

FORMAT = 1
"""Of `report.schema.json`: a change that a reader could stumble over raises it."""
PAPERS = {"hex": "HEX", "hubkv": "HubKV", "graphkv": "GraphKV"}
"""As they are called on the command line, and in the ids of their equations."""
EDGES = {
    "empty": " on empty input",
    "layout": " where memory is not contiguous",
    "negative zero": " at −0",
    "dtype": " at another dtype than float32",
    "range": " at very large or small numbers",
    "ties": " where numbers tie",
}
KINDS = (
    *(faults.SIGNATURE, faults.VALUES, faults.KIND, faults.LAW, faults.CRASH),
    *(faults.CHANGES, faults.LENIENT, faults.OTHER_ERROR),
)
MOST = 2
"""Lies named for a failure: more say nothing."""


def report(
    stats: dict[str, list[Any]], impls: list[Implementation], config: pytest.Config
) -> dict[str, Any]:
    """Return the whole report, from the reports of tests alone: they cross processes."""
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
        "modules": [module(impl, seen[impl.name], level) for impl in impls],
    }


def suite_version() -> str:
    """Return the version of the suite, as it is installed or checked out."""
    try:
        return version("kvspec")
    except PackageNotFoundError:
        lines = (ROOT / "pyproject.toml").read_text().splitlines()
        return next(line.split('"')[1] for line in lines if line.startswith("version"))


def module(
    impl: Implementation, tests: list[tuple[Any, str, dict[str, Any]]], level: str
) -> dict[str, Any]:
    """Return what one module did."""
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
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    marks: dict[str, set[str]] = defaultdict(set)
    for _, outcome, said in tests:
        for name in said["asks"]:
            counts[name][outcome] += 1
        for spec in said["spec"]:
            marks[spec].add(outcome)
    functions = [card(name, counts[name], found, level) for name in offered]
    bad = blamed(found, [card["function"] for card in functions if card["verdict"] != "fails"])
    mended = [
        {"test": test.nodeid, "reason": str(test.longrepr).removeprefix("[XPASS(strict)] ")}
        for test, _, _ in tests
        if str(getattr(test, "longrepr", "")).startswith("[XPASS(strict)]")
    ]
    return {
        "module": impl.name,
        "tests": dict(Counter(outcome for _, outcome, _ in tests)),
        "equations": {
            spec: "fails" if spec in bad else "passes" if "passed" in marks[spec] else "untested"
            for spec in sorted(equations(), key=numbered)
            if spec in bad | marks.keys()
        },
        "functions": functions,
        "elsewhere": failures(claim for claim in found if claim["function"] not in offered),
        "mended": mended,
        "lacks": sorted(impl.lacks & impl.judged),
        "misspelt": impl.misspelt,
        "unasked": sorted(impl.unasked),
    }


def blamed(found: Iterable[dict[str, Any]], good: Iterable[str]) -> set[str]:
    """Return the equations that failures speak against.

    They are those that a failing law bears and the function at fault states; where agreement alone
    fails, which bears none, those that no function that does not fail states besides.
    """
    claims, bad = defaultdict(list), set[str]()
    told = {spec for name in good for spec in source(name)}
    for claim in found:
        if not claim["follows"] and (claim["equations"] or claim["level"] != "errors"):
            claims[claim["function"]].append(claim)
    for name, mine in claims.items():
        borne = {spec for claim in mine for spec in claim["equations"]}
        stated = set(source(name)) if name else set[str]()
        bad |= borne & stated or stated - told or stated or borne
    return bad


def numbered(spec: str) -> list[Any]:
    """Order equations by number: 9 before 10."""
    return [int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", spec)]


def card(
    name: str, counts: Counter[str], found: list[dict[str, Any]], level: str
) -> dict[str, Any]:
    """Return the card of a function: what it states, how far it got, what it gets wrong."""
    mine = failures(claim for claim in found if claim["function"] == name)
    short = [LEVELS.index(failure["level"]) for failure in mine]
    reached = min(short, default=LEVELS.index(level) + 1)
    return {
        "function": name,
        "equations": [place(spec) for spec in source(name)],
        "printed": printed(name),
        "verdict": "fails" if mine else "passes" if counts["passed"] else "untested",
        "reached": LEVELS[reached - 1] if reached and (mine or counts["passed"]) else None,
        "passed": counts["passed"],
        "failed": len({claim["test"] for failure in mine for claim in failure["claims"]}),
        "failures": mine,
    }


def verdicts(card: dict[str, Any], level: str) -> list[str]:
    """Return how a function does at each level; wrong at the first, it passes none of the next."""
    bad = {failure["level"] for failure in card["failures"]}
    said = {part: "fails" if part in bad else "passes" for part in LEVELS}
    if "values" in bad and "edges" not in bad:
        said["edges"] = "–"
    return [said[part] for part in LEVELS[: LEVELS.index(level) + 1]]


def place(spec: str) -> dict[str, str]:
    """Return an equation with its title and its section."""
    entry = equations()[spec]
    return {
        "id": spec,
        "title": entry["title"],
        "where": f"{spec.partition('-')[0]} {entry['where']}",
    }


def failures(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return claims as one failure for each cause, the least input first."""

    def cause(claim: dict[str, Any]) -> tuple[bool, int, int, str]:
        level, kind = LEVELS.index(claim["level"]), KINDS.index(claim["kind"])
        return bool(claim["follows"]), level, kind, claim["edge"]

    made = []
    for _, group in groupby(sorted(found, key=cause), cause):
        claims = sorted(group, key=readable)
        first = claims[0]
        made.append(
            {
                "heading": first["kind"] + EDGES.get(first["edge"], ""),
                "kind": first["kind"],
                "edge": first["edge"] or None,
                "level": first["level"],
                "follows": sorted({name for claim in claims for name in claim["follows"]}),
                "causes": causes(claims),
                "claims": [
                    {k: v for k, v in claim.items() if k not in APART}
                    | {"equations": [place(spec) for spec in claim["equations"]]}
                    for claim in claims
                ],
            }
        )
    return made


def readable(claim: dict[str, Any]) -> tuple[bool, bool, float]:
    """Order claims: least input first, where a law says more than agreement does."""
    generic = "::test_agrees" in claim["test"] or "::test_manners" in claim["test"]
    return not claim["snippet"], claim["vacuous"], len(claim["snippet"]) * (1.5 if generic else 1)


APART = ("lies", "kind", "edge", "level", "function", "vacuous", "follows")


def causes(claims: list[dict[str, Any]]) -> list[str]:
    """Return the lies that answer alike: on the input that is shown, and on most of the others."""
    alike = Counter(lie for claim in claims for lie in claim["lies"])
    asked = sum(bool(claim["snippet"]) for claim in claims)
    best = max(alike.values(), default=0)
    named = [lie for lie in claims[0]["lies"] if alike[lie] == best and 2 * best >= asked]
    return named if len(named) <= MOST else []


def paper(seen: dict[str, str]) -> list[str]:
    """Return, for each paper, which equations fail, and how many pass of those offered.

    What only tests bear in which another equation's function fails is not judged.
    """
    lines = []
    for name in PAPERS.values():
        mine = {i: verdict for i, verdict in seen.items() if i.startswith(f"{name}-")}
        bad = ", ".join(f"{i} fails" for i, verdict in mine.items() if verdict == "fails")
        done = sum(verdict == "passes" for verdict in mine.values())
        if mine:
            passed = f"{done} of {len(mine)} equations offered pass"
            unjudged = ", ".join(i for i, verdict in mine.items() if verdict == "untested")
            passed += f"; not judged, since others fail: {unjudged}" if unjudged else ""
            lines.append(f"{name}: {bad}; {passed}" if bad else f"{name}: {passed}")
    return lines


def as_json(told: dict[str, Any]) -> str:
    """Return the report as JSON, of the form that `report.schema.json` says."""
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"
