"""Write what the site needs and git ignores: `python docs/generate.py`, then `mkdocs serve`.

Figures and tables go to docs/figures/, lists of equations and errata to docs/generated/, the laws
of the suite to docs/laws/, and a notebook stands beside each walk.
"""

import ast
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import figures
import notebooks

from spec_tests import index

DOCS = Path(__file__).parent
ERRATA = DOCS / "errata"
PAPERS = {"hubkv": "HubKV", "graphkv": "GraphKV", "hex": "HEX", "conventions": "All three"}
WEIGHTS = {
    "numbers": (
        "Changes numbers or selections",
        "Whoever reads the paper otherwise here computes other numbers, or keeps other entries.",
    ),
    "convention": (
        "A choice to be made",
        "The paper leaves something open that has to be settled, and matters less.",
    ),
    "print": ("Slips in print", "Text and tables that no code follows from."),
}
UNSEARCHED = ["---", "search:", "  exclude: true", "---"]
HEADING = re.compile(r"^### (?P<title>.+) \{ #(?P<id>E-[A-Z]\d+) \.(?P<weight>\w+) \}$")
# A sentence ends at a full stop that does not belong to an abbreviation or a number.
SENTENCE = re.compile(r".*?(?<!\b[A-Z])(?<!Eq)(?<!Fig)(?<!Tab)(?<!App)(?<!\bvs)[.?!](?=\s|$)")


def main() -> None:
    """Write every generated file, without leaving older ones."""
    figures.main()
    for folder in (DOCS / "generated", DOCS / "laws"):
        shutil.rmtree(folder, ignore_errors=True)
    for name, text in pages():
        file = DOCS / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def pages() -> Iterator[tuple[str, str]]:
    """Yield the path below docs/ and the text of each generated file."""
    yield "generated/equations.txt", index.page()
    yield "generated/errata.txt", errata()
    for stem in PAPERS:
        yield f"generated/errata_{stem}.txt", errata_that_change_numbers(ERRATA / f"{stem}.md")
    for path in sorted(index.HERE.rglob("test_*.py")):
        if index.spec_marked_tests(path):
            yield index.law_page_path(str(path.relative_to(index.HERE))), laws(path)
    for walk in sorted(DOCS.glob("*/walk.md")):
        notebook = notebooks.notebook(walk)
        yield f"{walk.parent.name}/walk.ipynb", json.dumps(notebook, indent=1) + "\n"


def laws(path: Path) -> str:
    """Return the page of a file of laws: each law with its ids and source, then the other code."""
    marks: dict[str, list[str]] = {}
    for spec, law in index.spec_marked_tests(path):
        marks.setdefault(law, []).append(spec)
    place = path.relative_to(index.HERE)
    top = "/".join([".."] * len(place.parts))
    rest = path.read_text().splitlines()
    lines = [*UNSEARCHED, f"# Laws in {place}"]
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name in marks:
            first = min(part.lineno for part in [node, *node.decorator_list]) - 1
            ids = [f"[{i}]({top}/equations.md#{i})" for i in dict.fromkeys(marks[node.name])]
            claim = index.law_as_sentence(node.name)
            heading = f"## {claim[0].upper()}{claim[1:]} {{ #{node.name} }}"
            lines += ["", heading, "", ", ".join(ids), "", *code(rest[first : node.end_lineno])]
            rest[first : node.end_lineno] = [""] * (node.end_lineno - first)
    left = re.sub(r"\n{4,}", "\n\n\n", "\n".join(rest)).strip()
    return "\n".join([*lines, "", "## The rest of the file", "", *code(left.splitlines())]) + "\n"


def code(lines: list[str]) -> list[str]:
    """Return lines of Python as a fenced code block."""
    return ["````python", *lines, "````"]


def errata() -> str:
    """Return the list of the errata by their weight for an implementer."""
    found: dict[str, dict[str, list[str]]] = {weight: {} for weight in WEIGHTS}
    for stem in PAPERS:
        for weight, line in entries(ERRATA / f"{stem}.md"):
            found[weight].setdefault(stem, []).append(line)
    lines = []
    for weight, (title, meaning) in WEIGHTS.items():
        lines += ["", f"## {title} {{ #{weight} }}", "", meaning]
        for stem, told in found[weight].items():
            lines += ["", f"### {PAPERS[stem]} {{ #{weight}-{stem} }}", ""]
            lines += ["<div data-search-exclude markdown>", "", *told, "", "</div>"]
    return "\n".join(lines) + "\n"


def entries(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the weight of each erratum of a file, and its line on the page."""
    lines = file.read_text().splitlines()
    for number, line in enumerate(lines):
        if heading := HEADING.match(line):
            text = "\n".join(lines[number + 1 :]).strip().partition("\n\n")[0].replace("\n", " ")
            first = SENTENCE.match(text)
            said = (first[0] if first else text).replace("](#", f"]({file.name}#")
            link = f"[{heading['title']}]({file.name}#{heading['id']})"
            yield heading["weight"], f"- {link}: {said}"


def errata_that_change_numbers(file: Path) -> str:
    """Return links to the errata of a file after which other numbers are computed."""
    titles = (HEADING.match(line) for line in file.read_text().splitlines())
    found = [
        f"[{one['title']}](#{one['id']})" for one in titles if one and one["weight"] == "numbers"
    ]
    return "\n".join(f"- {link}" for link in found) + "\n"


if __name__ == "__main__":
    main()
