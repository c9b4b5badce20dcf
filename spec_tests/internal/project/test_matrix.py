"""The table of implementations and equations agrees with the reports."""

import json
import subprocess
import sys

import pytest

from spec_tests.index import ROOT
from spec_tests.matrix import cell, read_columns, table
from spec_tests.report.report_data import FORMAT


def verdicts(values: str, edges: str | None = "passes", errors: str | None = "passes"):
    return {"values": values, "edges": edges, "errors": errors}


def report_of(spec="", modules=(), **said):
    """Return the text of a report: of given modules, or of one with the verdict on an equation."""
    one = {"module": "one", "equations": {spec: said}}
    return json.dumps({"format": FORMAT, "modules": [one] if spec else modules})


@pytest.fixture
def reports(tmp_path):
    """The files of two reports: one of two modules, one of a program."""

    def write(name, **modules):
        told = [{"module": module, "equations": said} for module, said in modules.items()]
        file = tmp_path / f"{name}.json"
        file.write_text(json.dumps({"format": FORMAT, "modules": told}))
        return str(file)

    mine = {"HubKV-10": verdicts("passes"), "HubKV-6": verdicts("passes", "fails")}
    return [
        write("modules", one=mine, other={"HubKV-6": verdicts("fails")}),
        write("program", program={"HEX-3.4a": verdicts("passes", "passes", None)}),
    ]


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (None, ""),
        (verdicts("passes"), "passes"),
        (verdicts("passes", None, None), "passes"),
        (verdicts("fails", "–", "fails"), "fails"),
        (verdicts("passes", "fails", "fails"), "fails at edges"),
        (verdicts("passes", "passes", "fails"), "fails at errors"),
        (verdicts("in part"), "in part"),
        (verdicts("passes", "passes", "in part"), "in part at errors"),
        (verdicts("untested"), "untested"),
    ],
)
def test_a_cell_is_the_first_verdict_that_is_not_passes(said, shown):
    assert cell(said) == shown


def test_rows_are_in_the_order_of_the_equations_and_counted_by_paper(reports):
    modules, program = reports
    lines = table(read_columns([modules, f"in C={program}"])).splitlines()
    rows = [[part.strip() for part in line.strip("|").split("|")] for line in lines]
    assert rows[0] == ["Equation", "", "one", "other", "in C"]
    assert [[row[0], *row[2:]] for row in rows[2:]] == [
        ["**HubKV**", "1 of 2", "0 of 1", ""],
        ["HubKV-6", "fails at edges", "fails", ""],
        ["HubKV-10", "passes", "", ""],
        ["**HEX**", "", "", "1 of 1"],
        ["HEX-3.4a", "", "", "passes"],
    ]


def run(*words):
    command = [sys.executable, "-m", "spec_tests.matrix", *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_the_command_prints_the_table(reports):
    done = run(*reports)
    assert done.returncode == 0, done.stderr
    assert done.stdout == table(read_columns(reports))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "must be a report of --report-json: "),
        ("{", "must be a report of --report-json: "),
        (100000 * "[", "must be a report of --report-json: "),
        (report_of(modules=None), "must be a report of --report-json: TypeError"),
        (report_of(modules=[{"module": "one"}]), "must be a report of --report-json: KeyError"),
        (report_of("HubKV-6"), "must be a report of --report-json: KeyError"),
        (report_of("HubKV-999", **verdicts("passes")), "has equations that are unknown here: Hub"),
        ("[]", f"must be a report of format {FORMAT}, got None"),
        ('{"format": 1}', f"must be a report of format {FORMAT}, got 1"),
    ],
)
def test_a_file_that_is_no_report_is_named(tmp_path, text, says):
    file = tmp_path / "file.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ValueError, match=f"file.json {says}"):
        read_columns([str(file)])


def test_the_command_refuses_two_columns_of_one_name(reports):
    done = run(reports[1], reports[1])
    assert done.returncode == 2
    assert "columns must have different names, got 'program' twice" in done.stderr
