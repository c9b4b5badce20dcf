"""The suite itself: what it reports, what it refuses, and that it bites."""

import doctest
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

import reference
from spec_tests.accuracy import assert_as_accurate

ROOT = Path(__file__).parent.parent
MODULE = """
from types import SimpleNamespace
import torch
import reference

def every_token(scores, radius=2, protected=None):
    return torch.ones_like(scores, dtype=torch.bool)

def unwritten(scores, hubs, gamma=0.5):
    return torch.empty_like(scores)

partial = SimpleNamespace(hub_mask=reference.hub_mask)
wrong = SimpleNamespace(hub_mask=every_token)
holes = SimpleNamespace(discount=unwritten)
named = SimpleNamespace(knorm=lambda keys: keys, hub_mask=every_token)
"""
VECTOR, LAW = "plateau-has-one-hub", "test_no_two_hubs_are_within_a_radius"
NEEDS_DISCOUNT = "test_a_hub_keeps_its_score"


def printed():
    """Return the module that the docs print as a complete submission."""
    page = (ROOT / "docs" / "conformance.md").read_text()
    return "".join(example.source for example in doctest.DocTestParser().get_examples(page))


def collected(path):
    """Whether pytest looks for tests there."""
    return path.is_dir() or path.name.startswith("test_")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """Run the suite from another folder, on a module `theirs` that stands in that folder."""
    folder = tmp_path_factory.mktemp("elsewhere")
    (folder / "theirs.py").write_text(MODULE)
    (folder / "printed.py").write_text(printed())

    def run(*words: str, only=("hubkv",), xfails: str = "") -> subprocess.CompletedProcess[str]:
        (folder / "xfails.txt").write_text(xfails)
        command = [sys.executable, "-m", "spec_tests", *words]
        # collecting what a test does not run would take most of its time
        others = (path for path in (ROOT / "spec_tests").iterdir() if path.name not in only)
        command += [f"--ignore={path}" for path in others if collected(path)]
        command += ["--xfails", "xfails.txt"] if xfails else []
        place = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        return subprocess.run(
            command, cwd=folder, env=place, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture(scope="module")
def report(suite):
    """One run over three modules: a partial one, a wrong one, one that leaves memory unwritten."""
    tests = f"{VECTOR} or {LAW} or {NEEDS_DISCOUNT} or test_index or test_layers"
    modules = ("theirs:partial", "theirs:wrong", "theirs:holes")
    only = ("hubkv", "test_vectors.py", "test_index.py", "test_layers.py")
    return suite(*modules, "-v", "--tb=no", "-k", tests, only=only).stdout


def test_a_partial_module_passes_and_what_it_lacks_is_listed(report):
    assert f"{LAW}[theirs:partial] PASSED" in report
    assert f"{NEEDS_DISCOUNT}[theirs:partial] SKIPPED" in report
    assert "theirs:partial fails" not in report
    assert "theirs:partial lacks: discount" in report


def test_a_wrong_module_fails_a_law_and_a_vector(report):
    assert f"{LAW}[theirs:wrong] FAILED" in report
    assert f"[theirs:wrong-discount-{VECTOR}] FAILED" in report
    assert "theirs:wrong fails: HubKV-6" in report


def test_a_result_with_unwritten_memory_is_found_out(report):
    assert f"{NEEDS_DISCOUNT}[theirs:holes] FAILED" in report


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_unwritten_memory_is_poisoned(dtype):
    assert torch.empty(1000, dtype=dtype).isnan().all()


def test_other_peoples_modules_are_not_held_to_our_docs_and_layers(report):
    assert "test_index.py" not in report
    assert "test_layers.py" not in report


def test_a_partial_module_is_conformant_unless_complete_is_asked_for(suite):
    # a profile may stand after a space
    words = ("theirs:partial", "-k", NEEDS_DISCOUNT, "--hypothesis-profile", "conformance")
    assert suite(*words).returncode == pytest.ExitCode.OK
    assert suite(*words, "--complete").returncode == pytest.ExitCode.TESTS_FAILED


def test_what_the_papers_only_name_is_tested_on_request(suite):
    generic = ("test_agreement.py", "test_errors.py", "test_types.py")
    words = ("theirs:named", "-k", "knorm or hub_mask", "-q", "--tb=no")
    usual = suite(*words, only=(*generic, "attention")).stdout
    assert "ours alone: pass --ours to run it" in usual
    assert "test_agrees_with_reference[theirs:named-hub_mask]" in usual
    assert "FAILED" in usual
    assert not re.search(r"(FAILED|ERROR).*knorm", usual)
    asked = suite(*words, "--ours", only=generic).stdout
    for file, test in zip(
        generic, ("test_signature", "test_refuses", "test_the_annot"), strict=True
    ):
        assert re.search(rf"FAILED .*{file}::{test}.*knorm", asked)


def test_an_expected_failure_is_strict(suite):
    lines = f"{LAW}[theirs:wrong]  # a known bug\n{LAW}[theirs:partial]  # mended since\n"
    done = suite("theirs:wrong", "theirs:partial", "-v", "-k", LAW, xfails=lines)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert f"{LAW}[theirs:wrong] - a known bug" in done.stdout
    assert "[XPASS(strict)] mended since" in done.stdout


def test_an_expected_failure_that_matches_nothing_is_a_usage_error(suite):
    done = suite("theirs:partial", xfails="test_of_another_day  # renamed since\n")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "no such test: test_of_another_day" in done.stderr


@pytest.mark.parametrize("module", ["no_such_module", "theirs:no_such_attribute"])
def test_an_unknown_module_is_a_usage_error(suite, module):
    done = suite(module)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--impl: " in done.stderr
    assert module.rpartition(":")[2] in done.stderr
    assert "Traceback" not in done.stderr


def test_small_elements_are_held_to_their_own_size():
    scores = torch.tensor([[1.0, 0.015, 0.01, 0.005]]).bfloat16()
    blanked = reference.smd(scores).where(scores > 0.02, 0)
    with pytest.raises(AssertionError):
        assert_as_accurate(blanked, reference.smd, dict(scores=scores))


class Held(NamedTuple):
    """What a cache remembers of attention, and of keys."""

    mass: Tensor
    keys: Tensor


@pytest.mark.parametrize("field", Held._fields)
def test_a_mass_that_a_cache_remembers_is_rounded_as_attention_is(field):
    def held(mass, keys):
        return Held(mass, keys)

    inputs = {name: torch.tensor([1.0, 1e-9], dtype=torch.float64) for name in Held._fields}
    near = held(**inputs | {field: inputs[field] + torch.tensor([0, 1e-22])})
    if field == "mass":
        assert_as_accurate(near, held, inputs)
    else:
        with pytest.raises(AssertionError):
            assert_as_accurate(near, held, inputs)


def test_the_submission_the_docs_print_is_complete(suite):
    done = suite("printed", "-k", "hub_mask or hubkv", only=("hubkv", "test_agreement.py"))
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert "printed fails" not in done.stdout


def test_an_unknown_device_is_a_usage_error(suite):
    done = suite("theirs:partial", "--device", "banana")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "--device: " in done.stderr
    assert "Traceback" not in done.stderr
