"""Print which implementations pass which equations, from reports that `--report-json` wrote.

`python -m spec_tests.matrix theirs.json 'a program in C=c.json'` prints a table in Markdown. A
column has the name before `=`, or else that of the module in the report.
"""

import argparse
import json
from pathlib import Path

from spec_tests.index import equations
from spec_tests.options import LEVELS, PAPERS
from spec_tests.report.report_data import FORMAT, equation_sort_key

Verdicts = dict[str, dict[str, str | None]]  # verdicts by equation and level


def cell(said: dict[str, str | None] | None) -> str:
    """Return the verdict on an equation, or "" if an implementation does not offer it.

    It is the first verdict that is not `passes`, from level to level.
    """
    for level in LEVELS:
        verdict = said[level] if said else None
        if verdict not in ("passes", None):
            return str(verdict) if level == LEVELS[0] else f"{verdict} at {level}"
    return "passes" if said else ""


def table(columns: dict[str, Verdicts]) -> str:
    """Return a Markdown table: a row for each equation that an implementation offers."""
    offered = {spec for verdicts in columns.values() for spec in verdicts}
    head = ["Equation", "", *columns]
    rows = [head, ["---"] * len(head)]
    for paper in PAPERS.values():
        mine = sorted((s for s in offered if s.startswith(f"{paper}-")), key=equation_sort_key)
        counts = [count_passing(verdicts, mine) for verdicts in columns.values()]
        rows += [[f"**{paper}**", "pass at all levels, of those offered", *counts]] if mine else []
        for spec in mine:
            title = equations()[spec]["title"].replace("|", r"\|")
            rows.append([spec, title, *(cell(verdicts.get(spec)) for verdicts in columns.values())])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def count_passing(verdicts: Verdicts, specs: list[str]) -> str:
    """Return how many of the offered equations in `ids` pass."""
    said = [cell(verdicts[spec]) for spec in specs if spec in verdicts]
    return f"{said.count('passes')} of {len(said)}" if said else ""


def read_columns(given: list[str]) -> dict[str, Verdicts]:
    """Return the verdicts of each module in these reports, by the name of its column.

    Raises:
        ValueError: a file is no report of this format, or two columns have one name.
    """
    columns: dict[str, Verdicts] = {}
    for word in given:
        name, _, file = word.rpartition("=")
        for module, verdicts in read_report(Path(file)):
            title = name or module
            if title in columns:
                raise ValueError(f"columns must have different names, got {title!r} twice")
            columns[title] = verdicts
    return columns


def read_report(file: Path) -> list[tuple[str, Verdicts]]:
    """Return each module in a report, and its verdicts.

    Raises:
        ValueError: the file is no report of this format, or has an equation that is not ours.
    """
    found: list[tuple[str, Verdicts]] = []
    try:
        report = json.loads(file.read_text(encoding="utf-8"))
        if report["format"] != FORMAT:
            raise ValueError(f"its format must be {FORMAT}, got {report['format']}")
        for module in report["modules"]:
            said = {
                spec: {level: verdicts[level] for level in LEVELS}
                for spec, verdicts in module["equations"].items()
            }
            found.append((str(module["module"]), said))
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{file} must be a report of --report-json, {error!r}") from error
    if unknown := {spec for _, said in found for spec in said} - equations().keys():
        names = ", ".join(sorted(unknown))
        raise ValueError(f"{file} has equations that are unknown here: {names}")
    return found


def main() -> None:
    """Print the table of the reports that the command line names."""
    parser = argparse.ArgumentParser("python -m spec_tests.matrix", description=__doc__)
    parser.add_argument(
        "reports", nargs="+", metavar="[NAME=]FILE", help="what --report-json wrote"
    )
    try:
        print(table(read_columns(parser.parse_args().reports)), end="")
    except ValueError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
