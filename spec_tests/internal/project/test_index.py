"""Papers, code, tests and docs refer to the same equations and names, in both directions."""

import re
import tomllib
from inspect import getdoc, isfunction, signature
from pathlib import Path

import pytest

import reference
from spec_tests import index
from spec_tests.index import HERE as SUITE
from spec_tests.index import ROOT

EQUATIONS = index.equations()
DOCS = ROOT / "docs"
REFERENCE = ROOT / "reference"
# docs/conventions.md is about the precision rule, docs/kinds.md about validation
NOT_AN_IDEA = ("__init__", "precision")
FILES = [
    path.relative_to(REFERENCE).with_suffix("")
    for path in sorted(REFERENCE.rglob("*.py"))
    if path.stem not in NOT_AN_IDEA
    and path.parent.name != "contract"
    and not path.name.startswith("_")
]
SHOWN = re.compile(r"^::: reference\.([\w.]+)$", re.MULTILINE)
ERRATUM = re.compile(r"\bE-[A-Z]\d+\b")


def of_kind(*kinds: str) -> list[str]:
    """Return the ids of these kinds that are not skipped."""
    return [i for i, entry in EQUATIONS.items() if entry["kind"] in kinds and "skip" not in entry]


def page_of(name: str) -> Path:
    """Return the docs page that must show a public name: that of its file."""
    return DOCS / Path(*index.dotted_path(name).split(".")[1:-1]).with_suffix(".md")


def pages_by_name() -> dict[str, list[Path]]:
    """Return, for every name that the docs show, the pages that show it."""
    found: dict[str, list[Path]] = {}
    for path in sorted(DOCS.rglob("*.md")):
        for place in SHOWN.findall(path.read_text()):
            found.setdefault(name_at(place), []).append(path)
    return found


def name_at(place: str) -> str:
    """Return the public name of a reference in the docs, or the file if it is one.

    `hubkv.ratio_gate.gate` is the function `gate`; `retain` alone is a file.
    """
    file = f"{place}.py"
    return file if (REFERENCE / file).exists() else place.rpartition(".")[2]


def laws_of(file: Path) -> list[Path]:
    """Return the laws of a reference file: in its own folder, its paper's, or the shared one."""
    shared = SUITE / (file.parent if file.parent.name else "attention")
    return [*(SUITE / file).glob("test_*.py"), *shared.glob(f"test_{file.name}*.py")]


def test_a_function_states_each_equation():
    silent = set(of_kind("code")) - index.cited_by_code().keys()
    assert not silent, "no public docstring cites them under `Source:`"


def test_a_law_or_a_vector_checks_each_equation():
    unchecked = set(of_kind("code", "law", "table")) - index.cited_by_tests().keys()
    assert not unchecked, "no `spec` mark and no vector names them"


def test_a_benchmark_measures_each_timing():
    assert set(of_kind("bench")) <= index.cited_by_benches()


def test_a_timing_is_never_a_test():
    assert not [
        i
        for i, entry in EQUATIONS.items()
        if entry["kind"] == "bench" and i in index.cited_by_tests()
    ]


def test_what_is_skipped_is_cited_nowhere():
    idle = {i for i, entry in EQUATIONS.items() if "skip" in entry}
    assert not idle & (index.cited_by_code().keys() | index.cited_by_tests().keys()), (
        "remove its `skip`"
    )


def test_an_equation_says_nothing_else_than_the_head_of_its_file_explains():
    said = {key for entry in EQUATIONS.values() for key in entry}
    assert said <= {"title", "where", "kind", "ours", "skip", "tex"}


def test_each_equation_is_shown():
    unseen = {i for i in of_kind("code", "law", "table") if not index.formulas(i)}
    assert unseen == {"HEX-3.2c"}, "no formula: a cache of masks is none"


def test_nothing_cites_an_unknown_equation():
    idle = {
        spec
        for path in SUITE.rglob("test_*.py")
        for spec, _ in index.spec_marked_tests(path, idle=True)
    }
    cited = (
        index.cited_by_code().keys()
        | index.cited_by_tests().keys()
        | index.cited_by_benches()
        | idle
    )
    assert not cited - EQUATIONS.keys()


def test_only_a_test_that_takes_an_implementation_counts(tmp_path):
    lines = (
        "pytestmark = pytest.mark.spec('HubKV-5')",
        "@pytest.mark.spec('HubKV-6')\ndef test_hubs(impl, x): ...",
        "@pytest.mark.spec('HubKV-7')\ndef test_a_theorem(x): ...",
    )
    file = tmp_path / "test_some.py"
    file.write_text("\n".join(lines))
    assert index.spec_marked_tests(file) == [("HubKV-5", "test_hubs"), ("HubKV-6", "test_hubs")]
    idle = [("HubKV-5", "test_a_theorem"), ("HubKV-7", "test_a_theorem")]
    assert index.spec_marked_tests(file, idle=True) == idle


def test_a_method_of_no_paper_is_listed_by_its_docstring_and_only_there():
    text = "Score it.\n\nSource:\n    Other-TOVA: Oren et al.,\n    2024.\n\nReading:\n    C3."
    entry = dict(title="Score it", where="Oren et al., 2024", kind="code", ours=True)
    assert index.other_methods([text, "Source:\n    Other-Bare, HubKV-6."]) == {"Other-TOVA": entry}
    on_file = tomllib.loads((DOCS / "equations.toml").read_text())
    assert not [spec for spec in on_file if spec.startswith("Other-")]


def test_every_function_states_its_source():
    functions = [n for n in reference.__all__ if isfunction(getattr(reference, n))]
    assert not [name for name in functions if not index.source_equations(name)], (
        "no id under `Source:`"
    )


def test_a_public_name_is_shown_once_on_its_files_page():
    pages = {name: [page_of(name)] for name in reference.__all__}
    assert pages_by_name() == pages | {"types": [DOCS / "kinds.md"]}


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_reference_file_has_a_page_and_laws_of_its_name(file):
    assert (DOCS / file).with_suffix(".md").exists()
    marks = [spec for path in laws_of(file) for spec, _ in index.spec_marked_tests(path)]
    assert marks, "no law carries a `spec` mark"


def test_every_reading_is_explained_in_the_errata():
    docs = [getdoc(getattr(reference, name)) or "" for name in reference.__all__]
    assert set(ERRATUM.findall(" ".join(d.partition("Reading:")[2] for d in docs))) <= set(errata())


def test_every_erratum_is_told_once_and_has_a_link_and_a_weight():
    assert len(errata()) == len(set(errata()))
    for path in sorted((DOCS / "errata").glob("*.md")):
        for heading in re.findall(r"^### .*$", path.read_text(), re.MULTILINE):
            ids = re.findall(r"\{ #(E-[A-Z]\d+) \.(?:numbers|convention|print) \}$", heading)
            assert ids, f"{path.name}: `{heading}` ends with no {{ #id .weight }}"
            assert set(ids) <= set(ERRATUM.findall(heading)), heading


def test_the_glossary_gives_a_function_no_argument_that_it_lacks():
    page = (DOCS / "glossary.md").read_text()
    for cell in re.findall(r"(?<=\|)[^|\n]*", page):
        owners = [getattr(reference, name) for name in re.findall(r"\[`(\w+)`\]\[", cell)]
        known = {name for owner in owners for name in signature(owner).parameters}
        named = set(re.findall(r"(?<!\[)`(\w+)`", cell))
        assert not owners or named <= known, cell


def errata() -> list[str]:
    """Return the erratum ids in the headings of the errata pages, once for each heading."""
    text = "\n".join(path.read_text() for path in sorted((DOCS / "errata").glob("*.md")))
    headings = re.findall(r"^### .*$", text, re.MULTILINE)
    return [i for heading in headings for i in dict.fromkeys(ERRATUM.findall(heading))]
