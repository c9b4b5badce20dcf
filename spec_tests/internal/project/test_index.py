"""Papers, code, tests and docs refer to the same equations and names, in both directions."""

import re
from collections import Counter
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
SHOWN = re.compile(r"^(?:::: |<!-- function )reference\.([\w.]+)(?: -->)?$", re.MULTILINE)
MARK = re.compile(
    r"\. (As printed \((Eq|§|Def|Alg|Prop|Thm|Tab|App|[A-Z]\b)|In words \(.*\"|Corrected \(E-"
    r"|From elsewhere: |Ours[:.,])"
)
ERRATUM = re.compile(r"\bE-[A-Z]\d+\b")


def of_kind(*kinds: str) -> list[str]:
    """Return the ids of these kinds that are not skipped."""
    return [i for i, entry in EQUATIONS.items() if entry["kind"] in kinds and "skip" not in entry]


def page_of(name: str) -> Path:
    """Return the docs page that must show a public name: that of its file."""
    return DOCS / Path(*index.dotted_path(name).split(".")[1:-1]).with_suffix(".md")


def laws_of(file: Path) -> list[Path]:
    """Return the laws of a reference file: in its own folder, its paper's, or the shared one."""
    shared = SUITE / (file.parent if file.parent.name else "attention")
    return [*(SUITE / file).glob("test_*.py"), *shared.glob(f"test_{file.name}*.py")]


def test_a_function_states_each_equation():
    silent = set(of_kind("code")) - index.cited_by_code().keys()
    assert not silent, "no public docstring cites them under `Source:`"


def test_a_docstring_says_whether_its_formula_is_printed():
    unmarked = []
    for name in reference.__all__:
        text = getdoc(getattr(reference, name)) or ""
        said = text.partition("Source:\n")[2].partition("Reading:\n")[0]
        if "$$" in text and not MARK.search(" ".join(said.split())):
            unmarked.append(name)
    assert not unmarked, "behind the ids under `Source:`"


def test_a_law_or_a_vector_checks_each_equation():
    unchecked = set(of_kind("code", "law", "table")) - index.cited_by_tests().keys()
    assert not unchecked, "no `spec` mark and no vector names them"
    assert set(of_kind("bench")) <= index.cited_by_benches(), "no benchmark measures them"


def test_what_is_cited_exists_and_no_test_cites_a_timing_or_what_is_skipped():
    files = SUITE.rglob("test_*.py")
    idle = {spec for path in files for spec, _ in index.spec_marked_tests(path, idle=True)}
    tested = index.cited_by_tests().keys()
    cited = index.cited_by_code().keys() | tested
    assert not (cited | index.cited_by_benches() | idle) - EQUATIONS.keys()
    assert not set(of_kind("bench")) & tested
    assert not {i for i, entry in EQUATIONS.items() if "skip" in entry} & cited


def test_every_function_states_its_source():
    functions = [n for n in reference.__all__ if isfunction(getattr(reference, n))]
    assert not [name for name in functions if not index.source_equations(name)], (
        "no id under `Source:`"
    )


def test_a_public_name_is_shown_once_on_its_files_page():
    shown = Counter(
        (shown_path.rpartition(".")[2], path)
        for path in DOCS.rglob("*.md")
        for shown_path in SHOWN.findall(path.read_text())
    )
    wanted = Counter((name, page_of(name)) for name in reference.__all__)
    assert shown == wanted + Counter([("types", DOCS / "kinds.md")])


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_reference_file_has_a_page_and_laws_of_its_name(file):
    assert (DOCS / file).with_suffix(".md").exists()
    marks = [spec for path in laws_of(file) for spec, _ in index.spec_marked_tests(path)]
    assert marks, "no law carries a `spec` mark"


def test_every_reading_is_an_erratum_that_is_explained_once_with_a_link_and_a_weight():
    errata = list[str]()
    for path in sorted({*(DOCS / "errata").glob("*.md")} - {DOCS / "errata/index.md"}):
        for heading in re.findall(r"^### .*$", path.read_text(), re.MULTILINE):
            weight = r'<a id="(E-[A-Z]\d+)" class="(?:numbers|convention|print)"></a>$'
            ids = re.findall(weight, heading)
            assert ids, f"{path.name}: `{heading}` ends with no anchor that has id and weight"
            errata += dict.fromkeys(ERRATUM.findall(heading))
            assert set(ids) <= {*errata}, heading
    assert len(errata) == len(set(errata))
    docs = [getdoc(getattr(reference, name)) or "" for name in reference.__all__]
    assert set(ERRATUM.findall(" ".join(d.partition("Reading:")[2] for d in docs))) <= {*errata}


def test_the_glossary_gives_a_function_no_argument_that_it_lacks():
    page = (DOCS / "glossary.md").read_text()
    for cell in re.findall(r"(?<=\|)[^|\n]*", page):
        owners = [getattr(reference, name) for name in re.findall(r"\[`(\w+)`\]\[", cell)]
        parameters = {name for owner in owners for name in signature(owner).parameters}
        named = set(re.findall(r"(?<!\[)`(\w+)`", cell))
        assert not owners or named <= parameters, cell
