"""The suite itself: its reports, its usage errors, and that it detects wrong modules."""

import json
import re
import sys
from inspect import isfunction, signature

import pytest

import reference
from spec_tests.index import HERE, ROOT
from spec_tests.inputs import INPUTS, REFUSALS
from spec_tests.internal.project.run_python import run_python
from spec_tests.tests_by_function import PUBLIC, functions_called_by, functions_called_in

VECTOR, LAW = "plateau-has-one-hub", "test_no_two_hubs_are_within_a_radius"
GENERIC = ("test_agreement.py", "test_errors.py")
NEEDS_DISCOUNT = "test_a_hub_keeps_its_score"


def test_what_a_module_lacks_is_one_count_and_a_wrong_one_fails(suite):
    """One run on a partial module, a wrong one, and one that skips writes."""
    tests = f"{VECTOR} or {LAW} or {NEEDS_DISCOUNT} or test_index"
    modules = ("theirs:partial", "theirs:wrong", "theirs:holes")
    only = ("hubkv", "test_vectors.py", "internal/project")
    report = suite(*modules, "-v", "--tb=no", "-k", tests, only=only).stdout
    for line in (
        f"{LAW}[theirs:partial] PASSED",
        f"{LAW}[theirs:wrong] FAILED",
        f"[theirs:wrong-discount-{VECTOR}] FAILED",
        f"{NEEDS_DISCOUNT}[theirs:holes] FAILED",
    ):
        assert line in report
    assert f"{NEEDS_DISCOUNT}[theirs:partial]" not in report
    assert not re.search("skipped", report, re.IGNORECASE)
    assert re.search("HubKV: 0 of [0-9]+ equations offered pass; not all tests were run", report)
    assert re.search("HubKV: .*HubKV-6 fails.*; 0 of [0-9]+ equations offered pass", report)
    assert len(re.findall(r"theirs:partial lacks \d+ functions$", report, re.MULTILINE)) == 1
    assert "test_index.py" not in report  # no module of others is held to our docs


def test_a_partial_module_is_conformant_unless_complete_is_asked_for(suite):
    # the name of a profile may be after a space
    words = ("theirs:partial", "-k", LAW, "--hypothesis-profile", "conformance")
    assert suite(*words).returncode == pytest.ExitCode.OK
    complete = suite(*words, "--complete")
    assert complete.returncode == pytest.ExitCode.TESTS_FAILED
    assert re.search("theirs:partial lacks .*: .*discount", complete.stdout)


def test_what_the_papers_only_name_is_tested_on_request(suite):
    words = ("theirs:named", "-k", "knorm or hub_mask", "-v", "--tb=no")
    usual = suite(*words, only=(*GENERIC, "attention")).stdout
    assert "test_agrees_with_reference[theirs:named-hub_mask]" in usual
    assert "hub_mask fails" in usual
    assert usual.count("knorm") == usual.count("tested only with --ours: knorm") == 1
    all_of_it = suite(*words, "--ours", only=GENERIC).stdout
    for test in ("py::test_signature", "py::test_calling_convention", "the_good_input_is_accepted"):
        assert re.search(rf"{test}.*knorm.* FAILED", all_of_it)


def test_an_expected_failure_is_strict(suite):
    lines = f"{LAW}[theirs:wrong]  # a known bug\n{LAW}[theirs:partial]  # mended since\n"
    done = suite("theirs:wrong", "theirs:partial", "-v", "-k", LAW, xfails=lines)
    assert done.returncode == pytest.ExitCode.TESTS_FAILED
    assert "expected to fail: a known bug" in done.stdout
    assert re.search(f"though expected to fail .mended since.: .*{LAW}", done.stdout)


def test_the_submission_the_docs_print_is_complete(suite):
    done = suite("printed", "-k", "hub_mask or hubkv", only=("hubkv", *GENERIC))
    assert done.returncode == pytest.ExitCode.OK, done.stdout


ENDS = """
import functools, sys
import pytest
import reference
from reference import attention, gate, knorm

@functools.wraps(reference.hub_mask)
def hub_mask(scores, radius=2, protected=None):
    return reference.hub_mask(scores, radius, protected) & (scores < 0.5)

def discount(scores, hubs, gamma=0.25):
    sys.exit(3)

def smd(scores, radius=2, gamma=0.5, protected=None):
    if protected is not None:
        raise NotImplementedError("protected")
    return reference.smd(scores, radius, gamma)

def pad_mask(scores):
    return scores

def calibrate(scores, settings):  # a stub counts as missing
    ...

def selectivity(scores, protected=None, epsilon=1e-6):
    what = "selectivity"
    raise NotImplementedError(what)

def kept_count(pool, ratio):
    pytest.skip("no")

class WithoutWords:
    def __repr__(self):
        raise RuntimeError

def head_weights(selectivity, tau=0.5, minimum=0.8, maximum=1.2):
    return WithoutWords()
"""


def test_what_a_function_does_instead_of_answering_is_told(suite, elsewhere):
    (elsewhere / "ends.py").write_text(ENDS)
    done = suite("ends", "--paper", "hubkv", "--report-json", "ends.json", only=())
    (module,) = json.loads((elsewhere / "ends.json").read_text())["modules"]
    failures = {card["function"]: card["failures"] for card in module["functions"]}
    got = {name: found[-1]["claims"][0]["got"] for name, found in failures.items() if found}
    assert re.search("^discount +fails +– +fails +HubKV-7$", done.stdout, re.MULTILINE)
    assert re.search("^gate +passes +passes +passes", done.stdout, re.MULTILINE)
    assert "attention" not in done.stdout
    assert "in part" not in done.stdout
    assert re.search("^smd +passes +passes +not run", done.stdout, re.MULTILINE)
    assert "torch.tensor" in got.pop("hub_mask")
    assert got == {
        "discount": "RuntimeError: raised SystemExit: 3",
        "kept_count": "RuntimeError: raised Skipped: no",
        "head_weights": "",
    }
    assert module["unsupported"].keys() == {"smd", "selectivity"}
    assert "skipped as not supported, tests of smd (7), " in done.stdout
    assert re.search("^selectivity +not run +not run", done.stdout, re.MULTILINE)
    assert any("hubkv_refine" in names for names in module["not_asked"]["HubKV-10"])
    assert "not asked of HubKV-10: 1 law needs calibrate, " in done.stdout


def test_what_was_not_run_says_so_and_passes_nothing(suite, elsewhere):
    (elsewhere / "chosen.py").write_text(ENDS)
    done = suite("chosen", only=("hubkv",))
    assert re.search("^discount +fails +– +not run", done.stdout, re.MULTILINE)
    assert re.search("^gate +in part +in part +not run", done.stdout, re.MULTILINE)
    words = " ".join(done.stdout.split())
    assert re.search(r"not run: .*agreement \(hub_mask, discount, smd ", words)
    assert re.search("; not all tests were run of .*HubKV-10,", done.stdout)
    assert "HubKV-8" in done.stdout.partition("not judged")[2].partition("\n")[0]


USAGE_ERRORS = {
    ("no_such_module",): "no_such_module",
    ("theirs:misspelt",): "unknown name hub_msk: did you mean hub_mask?",
    ("theirs:partial", "--paper=hex"): "offers no function of HEX, such as ",
    ("theirs:other",): "knorm, which no paper defines, needs --ours",
    ("theirs:partial", "--xfails=renamed"): "no such test: test_of_another_day",
    ("theirs:partial", "--call-limit=x"): "must be seconds from 0 to 86400, got x",
    ("theirs:partial", "--report-json=no/report.json"): "no/report.json: No such file or directory",
}


@pytest.mark.parametrize("words", USAGE_ERRORS)
def test_a_usage_error_is_said_without_a_traceback(suite, elsewhere, words):
    (elsewhere / "renamed").write_text("test_of_another_day  # renamed since\n")
    done = suite(*words, "-k", VECTOR)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert USAGE_ERRORS[words] in done.stderr
    assert "Traceback" not in done.stderr


NEVER = """
import time
import torch
import reference
from reference import gate

def hub_mask(scores, radius=2, protected=None):
    while scores.numel() > 1:
        try:
            scores.sum()
        except Exception:
            pass
    return reference.hub_mask(scores, radius, protected)

def smd(scores, radius=2, gamma=0.5, protected=None):
    return reference.discount(scores, hub_mask(scores, radius, protected), gamma)

def decay(*args, **kwargs):
    return torch.zeros(10**9).sum()
"""


def test_a_call_that_does_not_end_or_takes_all_memory_ends_and_the_run_with_it(suite, elsewhere):
    (elsewhere / "never.py").write_text(NEVER)
    only = ("test_agreement.py", "test_vectors.py", "hubkv")
    done = suite("never", "--call-limit", "0.5", "--report-json", "never.json", only=only)
    (module,) = json.loads((elsewhere / "never.json").read_text())["modules"]
    cards = {card["function"]: card for card in module["functions"]}
    (hangs,) = cards["hub_mask"]["failures"]
    assert (hangs["kind"], hangs["level"]) == ("does not end", "values")
    assert "print(never.hub_mask(" in hangs["claims"][0]["snippet"]
    assert {f["follows"][0] for f in cards["smd"]["failures"]} == {"hub_mask"}
    assert cards["gate"]["verdict"] != "fails"
    assert module["tests"]["skipped"]
    heavy = next(f for f in cards["decay"]["failures"] if f["kind"] == "crashes")
    if sys.platform == "linux":
        assert "can't allocate memory" in heavy["claims"][0]["got"]
    assert "hub_mask  fails    –" in done.stdout


WITHOUT = """
import runpy, sys
hidden, module, *sys.argv[1:] = sys.argv[1:]
sys.modules[hidden] = None
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def test_without_triton_or_pytest_the_suite_says_what_it_leaves_out(elsewhere):
    def without(package: str, *words: str):
        return run_python("-c", WITHOUT, package, *words, folder=elsewhere)

    done = without("triton", "spec_tests", "theirs:partial", "-k", VECTOR)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    folders = [str(HERE / "kernels"), str(HERE / "hubkv/ratio_gate")]
    done = without("triton", "pytest", *folders, "-rs", "-q", "--collect-only")
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
    assert "Triton is not installed, so there are no kernels" in done.stdout
    assert "[optimized]" in done.stdout
    assert "[optimized.kernels]" not in done.stdout
    done = without("pytest", "spec_tests", "theirs:partial")
    assert done.returncode == 1
    assert done.stderr == "The suite needs pytest: pip install 'kvspec[test]'\n"


def test_every_function_has_inputs_and_every_argument_that_can_be_wrong_is_tried():
    """Each parameter of each function has a refusal, unless it is a flag of any value."""
    functions = [n for n in reference.__all__ if isfunction(getattr(reference, n))]
    assert sorted(INPUTS) == sorted(REFUSALS) == sorted(functions)
    for name, (good, refusals) in REFUSALS.items():
        tried = {refusal.argument for refusal in refusals}
        flags = {k for k, v in good.items() if isinstance(v, bool)}
        parameters = set(signature(getattr(reference, name)).parameters)
        assert parameters <= tried | flags, (name, parameters - tried - flags)


OWN = """
from collections import namedtuple
from dataclasses import asdict, make_dataclass

import reference
from reference import h2o as scores_of_reference, hubkv_select as select_of_reference

defaults = reference.HubSettings._field_defaults
fields = [(name, object, default) for name, default in defaults.items()]
HubSettings = make_dataclass("HubSettings", fields, frozen=True)
Scored = namedtuple("Scored", reference.Scored._fields)


def hubkv_select(
    keys, values, scored, *, keep=None, ratio=None, scope="model", refinement=HubSettings(),
    sinks=4, recent=None, valid=None,
):
    if isinstance(scored, reference.Scored) or isinstance(refinement, reference.HubSettings):
        raise AssertionError("handed another's record")
    return select_of_reference(
        keys, values, reference.Scored(*scored), keep=keep, ratio=ratio, scope=scope, sinks=sinks,
        refinement=reference.HubSettings(**asdict(refinement)), recent=recent, valid=valid,
    )


def h2o(mass, keep, valid=None, recent=None):
    return Scored(*scores_of_reference(mass, keep, valid, recent))


def evict(keys, values, kept):
    return tuple(reference.evict(keys, values, kept))
"""


def test_own_records_pass_unless_they_have_another_default(suite, elsewhere):
    (elsewhere / "own.py").write_text(OWN)
    done = suite("own", "--ours", only=(*GENERIC, "test_vectors.py"))
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    assert {"hubkv_select", "h2o", "evict"} <= {*done.stdout.split()}
    (elsewhere / "own_default.py").write_text(OWN.replace("object, default)", "object, 7)"))
    done = suite("own_default", "-k", "test_a_record and HubSettings", only=GENERIC[:1])
    assert done.returncode == pytest.ExitCode.TESTS_FAILED


OLD = """
import reference
import torch
from collections import namedtuple

HexConfig = namedtuple(
    "HexConfig", reference.HexConfig._fields[:-1], defaults=reference.HexConfig()[:-1]
)


def hex_preset(name):
    return HexConfig(*reference.hex_preset(name)[:-1])


def hex_size(config, tokens, kv_heads=8, width=128, dtype=torch.float16):
    if not isinstance(config, HexConfig):
        raise TypeError(f"config must be of this module, got {config}")
    return reference.hex_size(reference.HexConfig(*config), tokens, kv_heads, width, dtype)
"""


def test_a_field_of_an_extension_is_asked_for_only_on_request(suite, elsewhere):
    (elsewhere / "old.py").write_text(OLD)
    words = "old", "-k", "hex_size or hex_preset or HexConfig or weigh"
    only = (*GENERIC, "test_generated.py", "hex/size")
    done = suite(*words, only=only)
    assert done.returncode == pytest.ExitCode.OK, done.stdout
    done = suite(*words, "--ours", only=only)
    assert "the next parameter must be value_bits, got no other" in done.stdout


SHADOWS = {
    "reference.py": ("-m", "spec_tests", "--help"),
    "optimized/__init__.py": ("-m", "spec_tests", "--help"),
    "reference/__init__.py": ("-c", "import optimized"),
}


@pytest.mark.parametrize("path", SHADOWS)
def test_a_module_of_another_project_is_named_with_both_paths(tmp_path, path):
    file, name = tmp_path / path, path.partition(".")[0].partition("/")[0]
    file.parent.mkdir(exist_ok=True)
    done = run_python("-c", "import optimized", folder=tmp_path)
    assert done.returncode == 0  # a folder without code hides nothing
    file.write_text("raise RuntimeError('must not be imported')")
    done = run_python(*SHADOWS[path], folder=tmp_path)
    (*_, last) = done.stderr.splitlines()
    assert done.returncode == 1
    assert f"`{name}` is {file.resolve()}, not {ROOT / name} of kvspec" in last
    assert "`python -P`" in last


@pytest.mark.parametrize("package", ["optimized", "spec_tests"])
def test_help_is_shown_without_pytorch(package):
    done = run_python("-X", "importtime", "-m", package, "--help")
    assert "--device DEVICE" in done.stdout
    assert "argparse" in done.stderr
    assert "torch" not in done.stderr


def test_no_file_is_left_out_that_calls_a_function_in_its_tree():
    for file in HERE.rglob("test_*.py"):
        called = functions_called_by(file, "")
        assert called == {name for name in PUBLIC if functions_called_in(file, {name})}
