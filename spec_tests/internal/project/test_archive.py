"""The archive of vectors: its bytes, its form, its readers, and the faults that they find."""

import json
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from math import isclose
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator

import reference
from spec_tests.accuracy import Unequal, assert_as_accurate, error_bounds
from spec_tests.index import HERE, ROOT, equations
from spec_tests.inputs import DRAWN, INPUTS, depends_on_random_stream
from spec_tests.json_values import read
from spec_tests.long_axes.inputs import BY_AGREEMENT, long_inputs
from spec_tests.mutants.patched_source import patched_reference
from spec_tests.vectors.__main__ import main
from spec_tests.vectors.archive import files, packed
from spec_tests.vectors.flags import flags_of, level_of, readings_of
from spec_tests.vectors.generate import as_json as as_inputs
from spec_tests.vectors.generate import generated
from spec_tests.vectors.judge import generated_vectors, judge_trace, judge_vector, traces
from spec_tests.vectors.traces import as_json

FORM = Draft202012Validator(json.loads((HERE / "vectors.schema.json").read_text()))
WORKED = [(file, json.loads(file.read_text())) for file in sorted(HERE.rglob("vectors.json"))]


@pytest.fixture(scope="module")
def found():
    """The files of the archive."""
    return files()


@pytest.fixture
def archive(found, tmp_path):
    """The folder of an unpacked archive."""
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on
    with tarfile.open(fileobj=BytesIO(packed(found))) as whole:
        whole.extractall(tmp_path, **safely)
    return next(tmp_path.iterdir())


@pytest.fixture(scope="module")
def archived(found):
    """The vectors of the archive."""
    texts = (content for path, content in found.items() if path.startswith("vectors/"))
    return [vector for text in texts for vector in json.loads(text)]


def test_two_archives_have_the_same_bytes(found, tmp_path):
    file = tmp_path / "vectors.tar.gz"
    assert json.loads(found["manifest.json"])["digest"] in main([str(file)])
    assert file.read_bytes() == packed(found)
    assert [*tmp_path.iterdir()] == [file]


def test_vectors_and_traces_are_of_the_form_that_the_schema_says(archived):
    """Testing all vectors of the archive would take twenty seconds."""
    FORM.validate([*{(case["function"], case["level"]): case for case in archived}.values()])
    FORM.validate([trace for trace in traces() if trace["id"] in ("ragged", "decoding")])
    for file, cases in WORKED:
        FORM.validate(cases)
        for case in cases:
            drawn = depends_on_random_stream(case["function"], read(case["inputs"]))
            assert case.get("drawn", False) >= drawn, (file, case["id"])
            assert case["function"] in DRAWN or "drawn" not in case, (file, case["id"])
    assert not FORM.is_valid([archived[0] | {"note": "one word too many"}])


def test_a_vector_says_what_its_inputs_are_in_words_that_a_page_explains(found, archived):
    for vector in archived:
        name, inputs = vector["function"], read(vector["inputs"])
        if vector["level"] == "errors":
            with pytest.raises(dict(value=ValueError, type=TypeError)[vector["expected"]["error"]]):
                getattr(reference, name)(**inputs)
        else:
            flags = flags_of(name, inputs)
            described = vector["flags"], vector["level"], vector["reading"]
            assert described == (flags, level_of(flags), readings_of(name)), vector["id"]
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/flags.md").read_text(), re.MULTILINE)
    assert {flag for vector in archived for flag in vector["flags"]} == {*headings}
    titles = {reading["id"] for reading in json.loads(found["readings.json"])}
    assert {name for case in [*archived, *traces()] for name in case["reading"]} <= titles
    assert {spec for vector in archived for spec in vector["spec"]} <= equations().keys()


@pytest.mark.parametrize("name", ["retain", "gear_compress"])
def test_a_function_gets_vectors_of_results_and_of_refusals(name):
    made = generated(name)
    FORM.validate(made)
    assert {vector["level"] for vector in made} == {"values", "edges", "errors"}
    for vector in made:
        if vector["level"] != "errors":
            judge_vector(reference, vector)
    assert any("hunts" in vector for vector in made)


def alike(one: Any, other: Any) -> bool:
    """Whether two values are equal, but for what another processor's sums change in floats."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or isclose(one, other, rel_tol=1e-6)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(alike, one, other))
    return one == other


def test_long_vectors_and_traces_made_anew_are_the_committed_ones():
    """A function with a long axis has a long vector, its first call, or agreement."""
    for name in INPUTS.keys() - BY_AGREEMENT.keys():
        ids = {vector["id"]: vector["inputs"] for vector in generated_vectors(name)}
        first = next(long_inputs(name), None)
        committed = ids.get(f"{name.replace('_', '-')}-long-1")
        assert alike(committed, first and as_inputs(first)), f"generate --long for {name}"
    (committed,) = (trace for trace in traces() if trace["id"] == "ragged")
    made = as_json("ragged")
    assert made.keys() == committed.keys()
    for step, other in zip(made["steps"], committed["steps"], strict=True):
        assert step["inputs"] == other["inputs"]


READERS = {
    "python": ("-S -E python/judge.py example", "python/example.py"),
    "javascript": ("javascript/judge.mjs javascript/example.mjs", "javascript/example.mjs"),
}
MISTAKES = {
    "python": ("sum(counts[:at])", "counts[at - 1]"),
    "javascript": ("sum(counts.slice(0, h))", "counts[h] ?? 0"),
}


@pytest.mark.parametrize("language", READERS)
def test_the_archive_is_judged_without_packages_and_a_mistake_is_named(request, archive, language):
    """A program with caches of another form is judged where it reads them."""
    command, example = READERS[language]
    runner = sys.executable if language == "python" else request.getfixturevalue("node")

    def judged(*words: str) -> tuple[int, str]:
        run = [runner, *command.split(), *words]
        done = subprocess.run(run, cwd=archive, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    status, output = judged()
    counts = [int(count) for count in re.findall(r"(\d+) right", output)]
    assert (status, counts[0] >= 100, counts[1]) == (0, True, 4), output
    assert judged("--own-caches")[0] == 0
    right, wrong = MISTAKES[language]
    source = (archive / example).read_text()
    assert source.count(right) == 1
    (archive / example).write_text(source.replace(right, wrong))
    for words, first_step in (
        ([], "ragged, step 1 (evict)"),
        (["--own-caches"], "ragged, step 3 (ragged_attention)"),
    ):
        status, output = judged(*words)
        assert status == 1
        assert first_step in output
        assert ("ragged, step 1 (evict)" in output) == (not words)
    if language == "python":
        (archive / example).write_text("def hubmask(scores): ...\n")
        status, output = judged()
        assert status == 1
        assert "example offers no function of the archive" in output


def test_a_trace_names_the_first_wrong_step_of_a_cache():
    positions = "left._replace(positions=view.positions[kept].view(shape)),"
    wrong = patched_reference("decoding_compression.py", positions, "left,")
    (trace,) = (trace for trace in traces() if trace["id"] == "decoding")
    with pytest.raises(Unequal, match="step 5 of decoding, decoding_append, stored, "):
        judge_trace(SimpleNamespace(**wrong), trace)


def test_a_tolerance_is_that_of_the_one_rule_and_no_vector_has_a_choice_that_rounding_changes():
    inputs = dict(scores=torch.tensor([0.3, 0.9]), corrected=torch.tensor([0.7, 0.1]), ratio=0.4)
    exact, bounds = error_bounds(reference.gate, inputs)
    assert_as_accurate(exact + 0.9 * bounds.float(), reference.gate, inputs)
    with pytest.raises(Unequal):
        assert_as_accurate(exact + 1.5 * bounds.float(), reference.gate, inputs)
    with pytest.raises(Unequal, match="another choice"):
        error_bounds(lambda x: x / 3 * 3 > x, dict(x=torch.tensor([0.1, 0.7])))
