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


def test_a_cell_is_the_first_verdict_that_is_not_passes():
    assert cell(None) == ""
    assert cell(verdicts("passes", None, None)) == "passes"
    assert cell(verdicts("fails", "–", "fails")) == "fails"
    assert cell(verdicts("passes", "fails", "fails")) == "fails at edges"
    assert cell(verdicts("passes", "passes", "in part")) == "in part at errors"


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


NO_REPORTS = ("[" * 100000, "[]", '{"format": 1}', '{"format": 2, "modules": [{}]}')


@pytest.mark.parametrize("text", NO_REPORTS, ids=len)
def test_a_file_that_is_no_report_is_named(tmp_path, text):
    file = tmp_path / "file.json"
    file.write_text(text)
    with pytest.raises(ValueError, match="json must be a report of --report-json, "):
        read_columns([str(file)])


def test_an_equation_that_is_unknown_is_named(tmp_path):
    modules = [{"module": "one", "equations": {"HubKV-999": verdicts("passes")}}]
    file = tmp_path / "file.json"
    file.write_text(json.dumps({"format": FORMAT, "modules": modules}))
    with pytest.raises(ValueError, match="are unknown here: HubKV-999"):
        read_columns([str(file)])


def test_the_command_prints_the_table_and_refuses_two_columns_of_one_name(reports):
    done = run(*reports)
    assert done.returncode == 0, done.stderr
    assert done.stdout == table(read_columns(reports))
    done = run(reports[1], reports[1])
    assert done.returncode == 2
    assert "columns must have different names, got 'program' twice" in done.stderr
