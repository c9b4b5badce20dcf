"""The index of equations: the functions that state each, and the tests that check it."""

import ast
import json
import re
import tomllib
from collections.abc import Iterable
from functools import cache
from inspect import getdoc, unwrap
from pathlib import Path
from typing import Any

import reference

HERE = Path(__file__).parent
ROOT = HERE.parent
PREFIXES = {"HubKV": "HubKV", "GraphKV": "GraphKV", "HEX": "HEX", "Other": "Other methods"}
# HubKV-6, HubKV-3.2a, HEX-A.2a, HEX-5a, HubKV-Thm1, HubKV-D, without a full stop at the end. HEX-3
# and HEX-4 are not ids but the paper's names of its three- and four-bit systems.
ID = re.compile(
    rf"\b(?!HEX-[34]\b(?!\.\d))(?:{'|'.join(PREFIXES)})-[A-Za-z0-9]+(?:\.[0-9]+[a-z]?)?\b"
)
FORMULA = re.compile(r"\$\$(.+?)\$\$", re.DOTALL)
MOST_FORMULAS = 4
"""Formulas that the page of equations shows of one equation, at most."""
UNSTATED = {"law": "a theorem", "table": "figures", "bench": "a timing", "code": "none yet"}
"""Why no function states an equation of a kind."""
OTHER = re.compile(r"(Other-[A-Za-z0-9]+): (.+?)\.$", re.MULTILINE | re.DOTALL)


@cache
def equations() -> dict[str, dict[str, Any]]:
    """Return the entry of every equation by its id: title, section and kind."""
    files = (ROOT / "docs/equations.toml", HERE / "equations.toml")  # the second is in the wheel
    file = next(filter(Path.exists, files))
    texts = (getdoc(getattr(reference, name)) or "" for name in reference.__all__)
    return tomllib.loads(file.read_text()) | other_methods(texts)


def other_methods(docstrings: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the entries of methods that none of the papers names, from docstrings.

    `Other-TOVA: Oren et al., 2024.` under `Source:` is an id and where the method is published. The
    docstring's first line is the statement.
    """
    found: dict[str, dict[str, Any]] = {}
    for text in docstrings:
        source = text.partition("Source:")[2].partition("Reading:")[0]
        for spec, where in OTHER.findall(source):
            title = text.partition("\n")[0].removesuffix(".")
            entry = dict(title=title, where=" ".join(where.split()), kind="code", ours=True)
            found.setdefault(spec, entry)
    return found


def source_equations(name: str) -> list[str]:
    """Return the ids under `Source:` in a public name's docstring."""
    section = (getdoc(getattr(reference, name)) or "").partition("Source:")[2]
    return ID.findall(section.partition("Reading:")[0])


def are_undefined_in_papers(ids: Iterable[str]) -> bool:
    """Whether there are ids, and none of them is defined in the papers."""
    entries, cited = equations(), set(ids)
    return bool(cited) and all(entries.get(i, {}).get("ours") for i in cited)


@cache
def cited_by_code() -> dict[str, list[str]]:
    """Return, for each equation, the public names whose docstring cites it."""
    found: dict[str, list[str]] = {}
    for name in reference.__all__:
        for spec in source_equations(name):
            found.setdefault(spec, []).append(name)
    return found


@cache
def cited_by_tests() -> dict[str, list[str]]:
    """Return, for each equation, the laws and vectors that are marked with it."""
    found: dict[str, list[str]] = {}
    for path in sorted(HERE.rglob("test_*.py")):
        for spec, test in spec_marked_tests(path):
            found.setdefault(spec, []).append(f"{path.relative_to(HERE)}::{test}")
    for path in sorted(HERE.rglob("vectors.json")):
        for case in json.loads(path.read_text()):
            for spec in case["spec"]:
                found.setdefault(spec, []).append(f"{path.relative_to(HERE)}::{case['id']}")
    return found


def spec_marked_tests(path: Path, idle: bool = False) -> list[tuple[str, str]]:
    """Return the pairs of an equation and a test of one file that `spec` marks declare.

    By default these are tests with an `impl` fixture, which check an implementation; with `idle`
    they are the others. A `pytestmark` of the file applies to each of its tests.
    """
    tree = ast.parse(path.read_text())
    common = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    ]
    return [
        (ast.literal_eval(argument), node.name)
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and idle != any(argument.arg == "impl" for argument in node.args.args)
        for mark in [*common, *node.decorator_list]
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.spec"
        for argument in mark.args
    ]


def cited_by_benches() -> set[str]:
    """Return the equations that the benchmarks or the page about them name."""
    files = [*(ROOT / "optimized/bench").rglob("*.py"), ROOT / "docs/performance.md"]
    return {spec for file in files if file.exists() for spec in ID.findall(file.read_text())}


def page() -> str:
    """Return the list of all equations, with the formula, the functions and the tests of each."""
    code, tests = cited_by_code(), cited_by_tests()
    lines = []
    for prefix, heading in PREFIXES.items():
        mine = {i: entry for i, entry in equations().items() if i.startswith(f"{prefix}-")}
        if mine:
            lines += [f"## {heading}", ""]
        for spec, entry in mine.items():
            functions = ", ".join(f"[`{name}`][{dotted_path(name)}]" for name in code.get(spec, []))
            why = entry.get("skip") or UNSTATED[entry["kind"]]
            stated = f"Functions: {functions}." if functions else f"No function: *{why}*."
            checked = checks(tests.get(spec, []))
            lines += [f"### {spec} · {entry['title']} {{ #{spec} }}", ""]
            lines += [f"$${formula}$$\n" for formula in formulas(spec)]
            lines += [f"{entry['where']}. {stated}", ""]
            lines += ["", f"<div markdown>{checked}</div>", ""] if checked else []
    return "\n".join(lines) + "\n"


def formulas(spec: str) -> list[str]:
    """Return the displayed formulas of an equation, in TeX.

    They stand in the docstrings of the functions that cite the fewest equations beside it, unless
    its entry has its own.
    """
    if own := equations()[spec].get("tex"):
        return [own]
    found: dict[int, list[str]] = {}
    for name in cited_by_code().get(spec, []):
        shown = FORMULA.findall(getdoc(getattr(reference, name)) or "")
        found.setdefault(len(source_equations(name)), []).extend(shown)
    nearest = next((found[count] for count in sorted(found) if found[count]), [])
    return [*dict.fromkeys(nearest)][:MOST_FORMULAS]


def dotted_path(name: str) -> str:
    """Return the dotted path of a public name, as the docs link to it."""
    return f"{unwrap(getattr(reference, name)).__module__}.{name}"


def checks(tests: list[str]) -> str:
    """Return a folded list of links to laws, and the number of vectors."""
    laws = [
        f"[{law_as_sentence(law)}]({law_page_path(path)}#{law})"
        for path, law in (test.split("::") for test in tests)
        if not path.endswith(".json")
    ]
    counts = ((len(laws), "law"), (len(tests) - len(laws), "vector"))
    said = ", ".join(f"{count} {what}{'s' * (count > 1)}" for count, what in counts if count)
    if not laws:
        return said
    return f"<details data-search-exclude><summary>{said}</summary>{'<br>'.join(laws)}</details>"


def law_page_path(path: str) -> str:
    """Return the page of a file of laws, from the root of the docs."""
    return f"laws/{path.removesuffix('.py')}.md"


def law_as_sentence(law: str) -> str:
    """Return a law's name as a sentence."""
    return law.removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    print(page(), end="")
