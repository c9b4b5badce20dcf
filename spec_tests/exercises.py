"""Mark exercises: a line for each, then the card of the first one that is wrong.

A module of exercises has a tuple `exercises` with the names of its functions, in the order to write
them. `python -m spec_tests FILE` marks it in its folder, and `mark` marks functions in a notebook.

An exercise is solved if its values are right on ordinary input, where numbers tie and along axes of
one element, and if the call leaves its arguments unchanged. Refusals of bad input do not count.
"""

import ast
import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from importlib import import_module
from inspect import isfunction
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch

import reference
from spec_tests.__main__ import pytest_arguments
from spec_tests.implementation import is_stub
from spec_tests.report import messages, plugin, report_data, terminal
from spec_tests.report.fault_diagnosis import CHANGES
from spec_tests.tests_by_function import VECTORS, functions_of_test, kind_of

COUNTED = (None, "", "ties", "single")
"""The edges at which an exercise must be right; without an edge input is ordinary."""
EXAMPLES = 30
"""Examples of a law: they detect nearly all mutants, see `spec_tests.conftest.PART`."""
WIDE = 96
"""Characters of the rows of a picture; wider ones are left out."""
ENOUGH, SHORT = 2, 400
"""The failed vectors after which a function is not tested further, or one if its program is short;
after the vectors any failed test is enough."""
SEARCH = 0.5
"""Seconds of failing examples of a law, after which it is not shrunk further, and of the search for
a cause."""
NOT_BEGUN, SOLVED, WRONG = "not begun", "solved", "wrong"
BUT = """
"solved, but not ..." counts as solved: an exercise leaves this edge out, the specification asks
for it"""


def mark_file(file: Path) -> int:
    """Mark the exercises of a file, and return the exit status: 1 if one is wrong."""
    sys.path.insert(0, str(file.resolve().parent))
    try:
        module = import_module(file.stem)
    except Exception as error:  # the learner's own
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).name == file.name]
        print("".join(traceback.format_list(own)), end="")
        print("".join(traceback.format_exception_only(error)), end="")
        return pytest.ExitCode.USAGE_ERROR
    return mark_module(module, module.exercises)


def mark(*functions: Callable[..., Any]) -> None:
    """Mark functions of a notebook.

    Args:
        functions: functions with the names of public functions of `reference`.

    Raises:
        ValueError: a name is no public function of the specification.
    """
    names = [function.__name__ for function in functions]
    if unknown := [name for name in names if name not in reference.__all__]:
        raise ValueError(f"functions must be named as those of reference, got {unknown[0]}")
    module = ModuleType("puzzles")  # the name under which a card imports it
    vars(module).update(zip(names, functions, strict=True), dtypes=(torch.float32, torch.float64))
    mark_module(module, names)


def mark_module(module: ModuleType, names: Sequence[str]) -> int:
    """Print the state of each exercise and one card, and return the exit status."""
    begun = [n for n in names if hasattr(module, n) and not is_stub(getattr(module, n))]
    if begun:
        print(f"marking {', '.join(begun)} …\n", flush=True)
    cards = cards_of_run(module, begun) if begun else {}
    if cards is None:
        return pytest.ExitCode.INTERRUPTED
    states = dict.fromkeys(names, NOT_BEGUN) | {n: state_of(c) for n, c in cards.items()}
    width = max(map(len, names))
    for number, (name, state) in enumerate(states.items(), 1):
        print(f"{number:>2}  {name:<{width}}  {state}")
    if any(state.startswith(f"{SOLVED}, but") for state in states.values()):
        print(BUT)
    wrong = [name for name in names if states[name] == WRONG]
    for name in wrong[:1]:
        first = counting_failures(cards[name])[0]
        least = cards[name] | {"failures": [first | {"claims": first["claims"][:1]}]}
        _, _, *card = terminal.card_lines(least)  # without its count of tests
        rows = picture(first["claims"][0])
        print(f"\n{name} is wrong", *(line for line, _ in card), *rows, sep="\n")
    left = [name for name in names if not states[name].startswith(SOLVED)]
    after = f"; next: {left[0]}" if left else ""
    print(f"\n{len(names) - len(left)} of {len(names)} solved{after}")
    return pytest.ExitCode.TESTS_FAILED if wrong else pytest.ExitCode.OK


def picture(claim: report_data.Data) -> Iterator[str]:
    """Yield the first wrong row beside the arguments that are as long, and marks below it."""
    call: Any = ast.parse(claim["snippet"]).body[-1]  # print(module.function(...))
    texts = {word.arg: ast.unparse(word.value) for word in call.value.args[0].keywords}
    texts |= {name: claim[name] for name in ("expected", "got")}
    rows = {name: rows_of(text) for name, text in texts.items()}
    expected, got = rows["expected"], rows["got"]
    at = next((i for i, row in enumerate(expected) if row not in got[i : i + 1]), 0)
    size = len(expected), len(expected[at]) if expected else 0
    alike = {name: x[at] for name, x in rows.items() if x and (len(x), len(x[at])) == size}
    if {"expected", "got"} <= alike.keys():
        marks = ["^" * (x != y) for x, y in zip(expected[at], got[at], strict=True)]
        lines = {f"row {at}": range(size[1]), **alike, "": marks}
        table = [[name, *map(cell, row)] for name, row in lines.items()]
        widths = [max(map(len, column)) + 2 for column in zip(*table, strict=True)]
        for row in ["", *table] if sum(widths) < WIDE else []:
            yield "     " * bool(row) + "".join(map(str.ljust, row, widths)).rstrip()


def rows_of(text: str) -> list[list[Any]]:
    """Return the rows of a tensor that is written out, and no rows of anything else."""
    if not (text.startswith("torch.tensor([") and text.endswith(")")):
        return []
    x = eval(text, {"torch": torch})
    return x.flatten(0, -2).tolist() if x.ndim > 1 else [x.tolist()]


def cell(x: object) -> str:
    """Return a mark as # or a dot, and a number in six digits."""
    return "#" if x is True else "." if x is False else x if isinstance(x, str) else f"{x:g}"


def state_of(card: report_data.Data) -> str:
    """Return whether an exercise is solved, with the edges that do not count and fail.

    Dtypes are left out: a module says itself for which it is written.
    """
    if counting_failures(card):
        return WRONG
    if not card["passed"]:
        return "not tested"
    failing = [failure["edge"] for failure in card["failures"] if failure["edge"] != "dtype"]
    edges = [report_data.EDGES[edge].strip() for edge in failing]
    return f"{SOLVED}, but not {' nor '.join(edges)}" if edges else SOLVED


def counting_failures(card: report_data.Data) -> list[report_data.Data]:
    """Return the failures for which an exercise is wrong."""
    return [f for f in card["failures"] if f["kind"] == CHANGES or f["edge"] in COUNTED]


def cards_of_run(module: ModuleType, names: list[str]) -> dict[str, report_data.Data] | None:
    """Run the suite on these functions of a module alone, and return the card of each.

    It is None after an interrupt.
    """
    view = ModuleType(module.__name__)
    others = {name for name in reference.__all__ if isfunction(getattr(reference, name))} - {*names}
    vars(view).update({k: v for k, v in vars(module).items() if k not in others})
    with TemporaryDirectory() as folder, replaced(view), redirect_stdout(StringIO()) as said:
        file = Path(folder) / "report.json"
        # jaxtyping's plugin is already imported here, by the reference
        quiet = ["-W", "ignore::pytest.PytestAssertRewriteWarning", "-p", "no:sugar"]
        words = [view.__name__, "--level", "edges", "--examples", str(EXAMPLES), *quiet]
        words += ["--report-json", str(file)]
        shrinking, explaining = (patch.object(x, "SECONDS", SEARCH) for x in (plugin, messages))
        with redirect_stderr(said), shrinking, explaining:
            status = pytest.main(pytest_arguments(words), plugins=[EnoughFailures()])
        if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            (report,) = json.loads(file.read_text())["modules"]
            return {card["function"]: card for card in report["functions"]}
    print(said.getvalue(), file=sys.stderr)
    return None


class EnoughFailures:
    """A pytest plugin that skips the tests of a function that is wrong on a short input."""

    def __init__(self):
        self.failures = Counter[str]()

    def pytest_runtest_setup(self, item: Any) -> None:
        """Skip a test if one of its functions has failed often enough for a card."""
        most = ENOUGH if kind_of(item.path) == VECTORS else 1
        if any(self.failures[name] >= most for name in functions_of_test(item)):
            pytest.skip("enough has failed")

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # around the report's, which adds the claims
    def pytest_runtest_makereport(self) -> Iterator[None]:
        """Count the failures of each function."""
        report = yield
        claims = dict(report.user_properties).get("claims", [])
        for claim in counting_failures({"failures": claims}):
            short = len(claim["snippet"]) < SHORT
            self.failures[claim["function"]] += ENOUGH if short else 1
        return report


@contextmanager
def replaced(module: ModuleType):
    """Let imports of a name find this module meanwhile, and keep PyTorch's settings."""
    name, mode = module.__name__, torch.get_deterministic_debug_mode()
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(mode)
        sys.modules[name] = before or module
