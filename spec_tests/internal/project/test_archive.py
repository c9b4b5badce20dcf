"""The archive of vectors: its bytes, its form, its readers, and the faults that they find."""

import json
import re
import shutil
import subprocess
import sys
import tarfile
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from jsonschema import Draft202012Validator
from torch import Tensor

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

FORM = json.loads((HERE / "vectors.schema.json").read_text())
WORKED = sorted(HERE.rglob("vectors.json"))


@pytest.fixture(scope="module")
def found():
    """The files of the archive."""
    return files()


@pytest.fixture(scope="module")
def archive(found, tmp_path_factory):
    """The folder of an unpacked archive."""
    folder = tmp_path_factory.mktemp("archive")
    safely: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from 3.11.4 on
    with tarfile.open(fileobj=BytesIO(packed(found))) as whole:
        whole.extractall(folder, **safely)
    return next(folder.iterdir())


@pytest.fixture(scope="module")
def archived(found):
    """The vectors of the archive."""
    return [
        vector
        for path, content in found.items()
        if path.startswith("vectors/")
        for vector in json.loads(content)
    ]


def test_two_archives_have_the_same_bytes(found, tmp_path):
    file = tmp_path / "vectors.tar.gz"
    said = main([str(file)])
    assert json.loads(found["manifest.json"])["digest"] in said
    assert file.read_bytes() == packed(found)
    assert [*tmp_path.iterdir()] == [file]


def test_vectors_and_traces_are_of_the_form_that_the_schema_says(archived):
    """Testing all vectors of the archive would take twenty seconds."""
    form = Draft202012Validator(FORM)
    form.validate([*{(one["function"], one["level"]): one for one in archived}.values()])
    form.validate([trace for trace in traces() if trace["id"] in ("ragged", "decoding")])
    for file in WORKED:
        form.validate(json.loads(file.read_text()))
    assert {spec for one in archived for spec in one["spec"]} <= equations().keys()
    assert not form.is_valid([archived[0] | {"note": "one word too many"}])


def test_a_worked_vector_that_follows_our_random_stream_says_so():
    for file in WORKED:
        for case in json.loads(file.read_text()):
            drawn = depends_on_random_stream(case["function"], read(case["inputs"]))
            assert case.get("drawn", False) >= drawn, (file, case["id"])
            assert case["function"] in DRAWN or "drawn" not in case, (file, case["id"])


def test_the_reference_refuses_every_bad_call(archived):
    kinds = {"value": ValueError, "type": TypeError}
    for vector in archived:
        if vector["level"] == "errors":
            with pytest.raises(kinds[vector["expected"]["error"]]):
                getattr(reference, vector["function"])(**read(vector["inputs"]))


def test_a_vector_says_what_its_inputs_are(archived):
    for vector in archived:
        if vector["level"] != "errors":
            name, flags = vector["function"], flags_of(vector["function"], read(vector["inputs"]))
            said = vector["flags"], vector["level"], vector["reading"]
            assert said == (flags, level_of(flags), readings_of(name)), vector["id"]


def test_a_page_explains_every_flag_and_a_vector_has_it(archived):
    headings = re.findall(r"^## (.*)$", (ROOT / "docs/flags.md").read_text(), re.MULTILINE)
    assert {flag for vector in archived for flag in vector["flags"]} == {*headings}


def test_every_reading_has_a_title(found, archived):
    titles = {one["id"] for one in json.loads(found["readings.json"])}
    assert {one for case in [*archived, *traces()] for one in case["reading"]} <= titles


@pytest.mark.parametrize("name", ["retain", "gear_compress"])
def test_a_function_gets_vectors_of_results_and_of_refusals(name):
    made = generated(name)
    Draft202012Validator(FORM).validate(made)
    assert {vector["level"] for vector in made} == {"values", "edges", "errors"}
    for vector in made:
        if vector["level"] != "errors":
            judge_vector(reference, vector)
    assert any("hunts" in vector for vector in made)


def test_every_function_with_a_long_axis_has_a_long_vector_or_agreement():
    """The first call of a function is the committed one."""
    for name in INPUTS.keys() - BY_AGREEMENT.keys():
        ids = {vector["id"]: vector["inputs"] for vector in generated_vectors().get(name, [])}
        first = next(long_inputs(name), None)
        committed = ids.get(f"{name.replace('_', '-')}-long-1")
        assert committed == (first and as_inputs(first)), f"generate --long for {name}"


def test_a_trace_made_anew_is_the_committed_one():
    (committed,) = (one for one in traces() if one["id"] == "ragged")
    made = as_json("ragged")
    assert made.keys() == committed.keys()
    for step, other in zip(made["steps"], committed["steps"], strict=True):
        assert step["inputs"] == other["inputs"]


READERS = {
    "python": [sys.executable, "-S", "-E", "python/judge.py", "example"],
    "javascript": ["node", "javascript/judge.mjs", "javascript/example.mjs"],
}


@pytest.fixture
def judged(request):
    """Return a function that runs a reader of the archive: its output, and whether all is right."""

    def run_reader(folder, language, *words):
        command, *rest = READERS[language]
        if command == "node":
            command = request.getfixturevalue("node")
        run = [command, *rest, *words]
        done = subprocess.run(run, cwd=folder, capture_output=True, text=True)
        assert not done.stderr, done.stderr
        return done.stdout, done.returncode == 0

    return run_reader


@pytest.mark.parametrize("language", READERS)
def test_the_archive_is_read_and_judged_without_python_packages(archive, judged, language):
    said, right = judged(archive, language)
    assert right, said
    counts = [int(count) for count in re.findall(r"(\d+) right", said)]
    assert counts[0] >= 100
    assert counts[1] == 4


@pytest.mark.parametrize(
    ("language", "file", "old", "new"),
    [
        ("python", "example.py", "sum(counts[:at])", "counts[at - 1]"),
        ("javascript", "example.mjs", "sum(counts.slice(0, h))", "counts[h] ?? 0"),
    ],
)
def test_a_mistake_in_an_example_is_named(archive, judged, tmp_path, language, file, old, new):
    """A program with caches of another form is judged where it reads them."""
    copy = shutil.copytree(archive, tmp_path / "copy")
    source = copy / language / file
    assert source.read_text().count(old) == 1
    assert judged(copy, language, "--own-caches")[1]
    source.write_text(source.read_text().replace(old, new))
    (said, right), (said_of_own, right_of_own) = (
        judged(copy, language, *words) for words in ([], ["--own-caches"])
    )
    assert not right
    assert not right_of_own
    assert "ragged, step 1 (evict)" in said
    assert "ragged, step 1 (evict)" not in said_of_own
    assert "ragged, step 3 (ragged_attention)" in said_of_own


def test_a_module_that_offers_nothing_is_no_success(archive, tmp_path):
    copy = shutil.copytree(archive, tmp_path / "copy")
    (copy / "python/example.py").write_text("def hubmask(scores): ...\n")
    done = subprocess.run(READERS["python"], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 1
    assert "example offers no function of the archive" in done.stderr


def test_a_trace_names_the_first_wrong_step_of_a_cache():
    positions = "left._replace(positions=view.positions[kept].view(shape)),"
    wrong = patched_reference("decoding_compression.py", positions, "left,")
    (trace,) = (one for one in traces() if one["id"] == "decoding")
    with pytest.raises(Unequal, match="step 5 of decoding, decoding_append, stored, "):
        judge_trace(SimpleNamespace(**wrong), trace)


def test_a_tolerance_is_that_of_the_one_rule():
    inputs = dict(scores=torch.tensor([0.3, 0.9]), corrected=torch.tensor([0.7, 0.1]), ratio=0.4)
    exact, bounds = error_bounds(reference.gate, inputs)
    assert_as_accurate(exact + 0.9 * bounds.float(), reference.gate, inputs)
    with pytest.raises(Unequal):
        assert_as_accurate(exact + 1.5 * bounds.float(), reference.gate, inputs)


def test_no_vector_is_made_where_rounding_changes_the_choice():
    def is_above(x: Tensor) -> Tensor:
        return x / 3 * 3 > x

    with pytest.raises(Unequal, match="another choice"):
        error_bounds(is_above, dict(x=torch.tensor([0.1, 0.7])))
