"""Print the report on a terminal."""

import textwrap
from collections.abc import Iterator
from itertools import chain

import pytest

from spec_tests.options import LEVELS
from spec_tests.report import report_data
from spec_tests.report.fault_diagnosis import LENIENT
from spec_tests.report.report_data import Data
from spec_tests.report.tex import as_text

ENDS = ("failed", "error", "passed", "xfailed", "skipped")
REFUSES = "refuses a bad "
WIDE, CUT = 400, " […] "
"""Number of characters from which a line of a program is cut, and the mark at the cut."""


def write(reporter: pytest.TerminalReporter, report: Data, config: pytest.Config) -> None:
    """Print, for each module, a card for each failing function and a table of all verdicts."""
    named = bool(config.getoption("--impl"))
    suite = report["suite"]
    for module in report["modules"]:
        if not module["equations"] and not any(
            c["passed"] + c["failed"] for c in module["functions"]
        ):
            continue
        reporter.section(f"{module['module']} · {suite['name']} {suite['version']}", bold=True)
        complete = bool(config.getoption("--complete"))
        parts = [card_lines(card) for card in module["functions"] if card["failures"]]
        parts += [failure_lines(1, failure) for failure in module["elsewhere"]]
        for line, colour in chain(*parts, verdict_lines(module, report["level"], named, complete)):
            reporter.write_line(line, **colour)


Line = tuple[str, dict[str, bool]]
PLAIN: dict[str, bool] = {}
BAD, GOOD, STRONG, FAINT = {"red": True}, {"green": True}, {"bold": True}, {"light": True}


def card_lines(card: Data, whole: bool = False) -> Iterator[Line]:
    """Yield the lines of the card of a failing function, if `whole` with every input."""
    yield "", PLAIN
    lenient = [failure for failure in card["failures"] if failure["kind"] == LENIENT and not whole]
    if len(lenient) == len(card["failures"]):
        yield from missing_errors(card["function"], lenient, BAD | STRONG)
        return
    tests = f"{card['failed']} of {card['failed'] + card['passed']} tests"
    yield f"{card['function']} fails {tests}", BAD | STRONG
    rest = [failure for failure in card["failures"] if failure not in lenient]
    own = [failure for failure in rest if not failure["follows"]]
    for equation in card["equations"] if own else ():
        yield f"  {equation['id']}: {equation['title']} ({equation['where']})", PLAIN
    for tex in card["printed"] if own else ():
        yield from wrap_paragraph(as_text(tex), "    ")
    for number, failure in enumerate(own, 1):
        yield from failure_lines(number, failure, whole)
    after = [failure for failure in rest if failure["follows"]]
    for names in dict.fromkeys(follows_from_clause(failure) for failure in after):
        claims = {
            c["claim"]: 0 for f in after if follows_from_clause(f) == names for c in f["claims"]
        }
        yield from wrap_paragraph(f"{names}: {'; '.join(claims)}", "  ", "    ")
    if lenient:
        yield from missing_errors("  It also", lenient, PLAIN)


def missing_errors(subject: str, failures: list[Data], colour: dict[str, bool]) -> Iterator[Line]:
    """Yield a line with the bad arguments that a function accepts; the other reports have calls."""
    claims = [claim for failure in failures for claim in failure["claims"]]
    said = list(dict.fromkeys(claim["claim"] for claim in claims))
    bad = [text.removeprefix(REFUSES) for text in said if text.startswith(REFUSES)]
    laws = [f"; fails: {text}" for text in said if not text.startswith(REFUSES)]
    why = {f"; expected: {c['expected_to_fail']}": 0 for c in claims if c["expected_to_fail"]}
    refused = f" does not refuse a bad {', '.join(bad)}" if bad else " misses errors"
    text = f"{subject}{refused} (level: errors){''.join([*laws, *why])}"
    for line, _ in wrap_paragraph(text, "", "    "):
        yield line, colour


def follows_from_clause(failure: Data) -> str:
    """Return the clause that names the functions that a failure follows from."""
    *others, last = failure["follows"]
    names = f"{', '.join(others)} and {last}, which fail" if others else f"{last}, which fails"
    return f"follows from {names} too"


def failure_lines(number: int, failure: Data, whole: bool = False) -> Iterator[Line]:
    """Yield the lines of one failure: heading, example, likely cause, other claims of that cause.

    Of the other claims it is the sentence, or the `whole` of their examples, too.
    """
    first, *others = failure["claims"]
    yield "", PLAIN
    heading = failure["heading"][:1].upper() + failure["heading"][1:]
    yield f"  {number}. {heading} (level: {failure['level']})", STRONG
    yield from claim_lines(first, whole)
    for likely in failure["causes"]:
        yield from labelled_paragraph("likely", likely)
    if whole:
        for claim in others:
            yield "", PLAIN
            yield from claim_lines(claim, whole)
    elif also := dict.fromkeys(c["claim"] for c in others if c["claim"] != first["claim"]):
        yield from labelled_paragraph("also fails", "; ".join(also))


def claim_lines(claim: Data, whole: bool) -> Iterator[Line]:
    """Yield the lines of a claim: its sentence, the program, the expected and the actual result."""
    ids = "; ".join(f"{equation['id']}, {equation['where']}" for equation in claim["equations"])
    yield from wrap_paragraph(claim["claim"] + f" ({ids})" * bool(ids), "     ")
    if claim["expected_to_fail"] is not None:
        yield f"     expected to fail: {claim['expected_to_fail']}", PLAIN
    lines = claim["snippet"].splitlines()
    for line in lines:
        shown = line if whole or len(line) < WIDE else f"{line[:70]}{CUT}{line[-20:]}"
        yield f"         {shown}".rstrip(), FAINT
    if not whole and any(len(line) >= WIDE for line in lines):
        yield f"         {CUT.strip()} is cut: --report-html or --report-json have it whole", FAINT
    if claim["expected"]:
        yield f"     {'expected':<10}{claim['where']}  {claim['expected']}", GOOD
        yield f"     {'got':<10}{claim['where']}  {claim['got']}", BAD
    else:
        yield from wrap_paragraph(claim["message"], "     ")


def labelled_paragraph(label: str, text: str) -> Iterator[Line]:
    """Yield the lines of a paragraph beside its label."""
    return wrap_paragraph(f"{label:<12}{text}", "     ", " " * 17)


def verdict_lines(module: Data, level: str, named: bool, complete: bool) -> Iterator[Line]:
    """Yield the table of verdicts by function and level, then the verdicts on equations."""
    yield "", PLAIN
    levels = LEVELS[: LEVELS.index(level) + 1]
    tested = [card for card in module["functions"] if card["verdict"] != "untested"]
    if named and tested:
        width = max(len(name) for name in ("function", *(card["function"] for card in tested))) + 2
        yield f"{'function':<{width}}{''.join(f'{level:<9}' for level in levels)}equations", STRONG
        for card in tested:
            said = "".join(f"{mark:<9}" for mark in report_data.verdicts(card, level).values())
            ids = ", ".join(equation["id"] for equation in card["equations"])
            colour = {"fails": BAD, "passes": GOOD}.get(card["verdict"], PLAIN)
            yield f"{card['function']:<{width}}{said}{ids}", colour
    for line in report_data.lines_by_paper(module["equations"]):
        yield line, BAD if "fails" in line else PLAIN if "not all" in line else GOOD
    for line in report_data.lines_on_tests_not_run(module) if named else ():
        yield from wrap_paragraph(line, "")
    tests = module["tests"]
    said = ", ".join(f"{tests[end]} {end}" for end in ENDS if tests.get(end))
    whole = count(sum(tests.values()), "test")
    yield f"{whole}: {said}; a test of several functions counts for each of them", PLAIN
    for mended in module["mended"]:
        yield f"passes, though expected to fail ({mended['reason']}): {mended['test']}", BAD
    for line in report_data.lines_on_misspelt_names(module["misspelt"]):
        yield line, BAD
    if unasked := module["unasked"]:
        yield from wrap_paragraph(f"tested only with --ours: {', '.join(unasked)}", "")
    if module["lacks"]:
        names = f": {', '.join(module['lacks'])}" if complete else ""
        yield f"{module['module']} lacks {count(len(module['lacks']), 'function')}{names}", PLAIN


def wrap_paragraph(text: str, indent: str, after: str | None = None) -> Iterator[Line]:
    """Yield the lines of a wrapped paragraph."""
    later = indent if after is None else after
    for line in textwrap.wrap(text, 100, initial_indent=indent, subsequent_indent=later):
        yield line, PLAIN


def count(number: int, what: str) -> str:
    """Return a number with its noun, in the plural unless it is 1."""
    return f"{number} {what}{'s' * (number != 1)}"
