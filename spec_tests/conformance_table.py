"""The closing table: equations passed, per paper and implementation.

Built from the reports alone, because session state does not survive pytest-xdist.
"""

from collections import defaultdict

import pytest

from spec_tests.implementation import Implementation
from spec_tests.index import are_ours, equations

EQUATIONS = equations()
PAPERS = ("HEX", "HubKV", "GraphKV")


def is_ours_alone(item: pytest.Item) -> bool:
    """Whether every equation a test checks is one the papers name without defining."""
    return are_ours(i for mark in item.iter_markers("spec") for i in mark.args)


def write(reporter, impls: list[Implementation], complete: bool) -> None:
    """Write the table, what did not pass, and how much each implementation lacks."""
    outcomes = gather(reporter)
    if not outcomes:
        return
    reporter.section("conformance: equations passed")
    width = max(map(len, outcomes)) + 2
    for impl, seen in outcomes.items():
        cells = (f"{paper} {score(seen, paper):<8}" for paper in PAPERS)
        reporter.write_line(f"{impl:<{width}}" + "  ".join(cells))
    for impl, seen in outcomes.items():
        if bad := sorted(i for i, results in seen.items() if results & {"failed", "xfailed"}):
            reporter.write_line(f"{impl} fails: {', '.join(bad)}")
    for impl in impls:
        if impl.missing:
            names = f": {', '.join(impl.missing)}" if complete else ""
            reporter.write_line(f"{impl} lacks {len(impl.missing)} functions{names}")


def gather(reporter) -> dict[str, dict[str, set[str]]]:
    """Return implementation -> equation -> outcomes."""
    outcomes: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for report in reporter.stats.get(outcome, []):
            seen = dict(getattr(report, "user_properties", ()))  # a collection error has none
            if "impl" in seen:
                for spec in seen["spec"]:
                    result = "failed" if outcome == "error" else outcome
                    outcomes[seen["impl"]][spec].add(result)
    return outcomes


def score(seen: dict[str, set[str]], paper: str) -> str:
    """Return `passed/known`: an equation passes if a test of it passed and none failed."""
    known = [i for i, entry in EQUATIONS.items() if i.startswith(paper + "-") and checked(entry)]
    good = [i for i in known if "passed" in seen[i] and not seen[i] & {"failed", "xfailed"}]
    return f"{len(good)}/{len(known)}"


def checked(entry: dict) -> bool:
    """Whether tests check an equation: it is no timing and not skipped."""
    return entry["kind"] != "bench" and "skip" not in entry
