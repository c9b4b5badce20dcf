"""The table of implementations and equations agrees with the reports."""

import json

import pytest

from spec_tests.internal.project.run_python import run_python
from spec_tests.matrix import read_columns
from spec_tests.report.report_data import FORMAT


def report(**modules) -> str:
    """Return a report: of each module, the verdicts on equations at the three levels."""
    levels, entries = ("values", "edges", "errors"), []
    for module, equations in modules.items():
        verdicts = {spec: dict(zip(levels, x, strict=True)) for spec, x in equations.items()}
        entries.append({"module": module, "equations": verdicts})
    return json.dumps({"format": FORMAT, "modules": entries})


PASSES = ("passes",) * 3
REPORTS = {
    "modules.json": report(
        one={"HubKV-10": PASSES, "HubKV-6": ("passes", "fails", "fails")},
        other={"HubKV-6": ("fails", "–", "fails"), "HubKV-10": ("passes", "passes", "in part")},
    ),
    "program.json": report(program={"HEX-3.4a": ("passes", "passes", None)}),
}
TABLE = [
    ["Equation", "one", "other", "in C"],
    ["**HubKV**", "1 of 2", "0 of 2", ""],
    ["HubKV-6", "fails at edges", "fails", ""],
    ["HubKV-10", "passes", "in part at errors", ""],
    ["**HEX**", "", "", "1 of 1"],
    ["HEX-3.4a", "", "", "passes"],
]
NO_REPORTS = {
    "[]": "must be a report of --report-json, ",
    report(one={"HubKV-999": PASSES}): "are unknown here: HubKV-999",
}


def test_a_cell_is_the_first_verdict_that_is_not_passes_and_columns_have_different_names(tmp_path):
    for name, text in REPORTS.items():
        (tmp_path / name).write_text(text)
    modules, program = (str(tmp_path / name) for name in REPORTS)
    done = run_python("-m", "spec_tests.matrix", modules, f"in C={program}")
    assert done.returncode == 0, done.stderr
    rows = [line.strip("|").split("|") for line in done.stdout.splitlines()]
    cells = [[cell.strip() for cell in row] for row in rows]
    assert [[row[0], *row[2:]] for row in cells[:1] + cells[2:]] == TABLE
    done = run_python("-m", "spec_tests.matrix", program, program)
    assert done.returncode == 2
    assert "columns must have different names, got 'program' twice" in done.stderr


@pytest.mark.parametrize("text", NO_REPORTS, ids=len)
def test_a_file_that_is_no_report_is_named(tmp_path, text):
    (tmp_path / "file.json").write_text(text)
    with pytest.raises(ValueError, match=NO_REPORTS[text]):
        read_columns([str(tmp_path / "file.json")])
