"""A program passes the suite over a pipe; one that does not answer is reported and restarted."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from spec_tests import program
from spec_tests.index import ROOT
from spec_tests.internal.project.run_python import run_python
from spec_tests.limits import DoesNotEnd, Limit
from spec_tests.program import LeftOut, NoAnswer, NotAProgram, Program, ProgramEnded

OFFER = 'print(json.dumps({"protocol": 1, "functions": ["kept_count"]}), flush=True)'
ANSWERS = """
for line in sys.stdin:
    call = json.loads(line)
    print(json.dumps({"id": call["id"], "result": 3}), flush=True)
"""
CALL = ("kept_count", {"pool": 6, "ratio": 0.5})


@pytest.fixture
def start(monkeypatch):
    """Return a function that starts a program from its text; no wait takes long."""
    started = []
    for name, short in dict(GRACE=0.3, LONGEST=10**5).items():
        monkeypatch.setattr(program, name, short)

    def start_program(text: str, launcher: str = "{}") -> Program:
        text = f"import json, os, resource, sys, time\n{text}"
        started.append(Program(launcher.format(shlex.join([sys.executable, "-IS", "-c", text]))))
        return started[-1]

    yield start_program
    for running in started:
        running.stop()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("time.sleep(60)", "no line within 0.2 s"),
        ("while True: sys.stdout.write(10**4 * 'x')", "must have less than 100000 bytes, got 'xx"),
        ("print(10**4 * '[')", r"a line must be JSON, got '\[\["),
        ("sys.exit('error: \\33[1m')", r"status 1: error: \\x1b\[1m$"),
    ],
)
def test_a_first_line_that_does_not_come_or_is_wrong_is_told(start, monkeypatch, text, says):
    monkeypatch.setattr(program, "START", 0.2 if says.startswith("no line") else 60.0)
    with pytest.raises(NotAProgram, match=says):
        start(text)


def test_a_signal_to_the_suite_ends_the_program_and_what_its_launcher_started_first(start):
    seen, before = [], signal.getsignal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, lambda *_: seen.append(inner.process.poll()))
    inner = start(f"{OFFER}\ntime.sleep(60)", 'sh -c \'"$0" "$@"; true\' {}')
    program.stop_at_signal(inner, signal.SIGUSR1)
    os.kill(os.getpid(), signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)
    assert seen == [-signal.SIGKILL]
    inner.errors_end.join(0.4)  # the last process that could write has ended
    assert not inner.errors_end.is_alive()


def test_a_program_that_ends_after_an_answer_is_served_unless_with_an_error(start, monkeypatch):
    slow = f"time.sleep(0.3)\n{OFFER}{ANSWERS}"
    right, wrong = (start(f"{slow}    sys.exit({status})") for status in (0, 1))
    for _ in range(4):
        with Limit(0.2).on("kept_count"):
            assert right.answer(*CALL) == 3
    monkeypatch.setattr(program, "RESTARTS", 0.0)
    with pytest.raises(LeftOut, match="took more than 0 s"):
        right.answer(*CALL)
    assert wrong.answer(*CALL) == 3
    wrong.process.wait()
    with pytest.raises(ProgramEnded, match="ended with status 1, after the answer before"):
        wrong.restart_if_ended()


def test_memory_and_what_is_kept_of_stderr_are_limited_from_the_first_start(start):
    limit = ANSWERS.replace("3}", "resource.getrlimit(resource.RLIMIT_DATA)[0]}")
    loud = start(f"{OFFER}\nfor _ in range(20): sys.stderr.write(10**5 * 'x')\n{limit}")
    assert 2**31 < loud.answer(*CALL) < 2**31 + 2**28 or sys.platform != "linux"
    assert sum(map(len, loud.errors)) <= program.KEPT**2


@pytest.mark.parametrize(
    ("fault", "error", "says"),
    [
        ("sys.exit('out of luck')", ProgramEnded, "ended with status 1: out of luck"),
        ("write(id=9, result=3)", NoAnswer, "id must be 1, got"),
        ("write(id=1, result={'float32': ['word']})", NoAnswer, "no value: "),
        ("write(id=1, result={'uint8': [-1]})", NoAnswer, "in the range of uint8"),
        ("time.sleep(60)", DoesNotEnd, "still running after"),
        ("os.close(0); os.close(1); time.sleep(60)", ProgramEnded, "closed its output"),
    ],
)
def test_a_call_without_an_answer_is_named_and_the_next_one_passes(start, fault, error, says):
    faulty = start(
        f"def write(**answer): print(json.dumps(answer), flush=True)\n{OFFER}"
        + ANSWERS.replace("    print", f"    if call['id'] == 1:\n        {fault}\n    print")
    )
    limit = Limit(0.2 if error is DoesNotEnd else 20.0)
    with pytest.raises(error, match=re.escape(says)), limit.on("kept_count"):
        faulty.answer(*CALL)
    faulty.restart_if_ended()
    assert faulty.answer(*CALL) == 3


def test_the_card_names_the_cause_and_the_rest_of_the_run_passes(suite, tmp_path):
    answer = ANSWERS.replace("3}", "int(call['inputs']['pool'] / 2)}")
    fault = "    if call['inputs']['pool'] == 100: time.sleep(60)\n    print"
    answer = answer.replace("    print", fault)
    (tmp_path / "program.py").write_text(f"import json, sys, time\n{OFFER}{answer}")
    command = shlex.join([sys.executable, f"{tmp_path}/program.py"])
    words = ("--command", command, "--call-limit", "1", "-k", "test_vector")
    done = suite(*words, only=("test_vectors.py",))
    assert "1. Does not end (level: values)" in done.stdout
    assert "2 tests: 1 failed, 1 passed" in done.stdout  # the vector of 100, and the one after it


MISTAKES = {
    "selectivity": (
        "Math.sqrt(mean(raised.map((x) => (x - center) ** 2)))",
        "Math.sqrt(sum(raised.map((x) => (x - center) ** 2)) / Math.max(1, raised.length - 1))",
        "the sample's deviation, not the population's",
    ),
    "source_count": (
        "floor_share(fraction, keep - window)",
        "floor_share(fraction, keep)",
        "the window is not subtracted from the budget",
    ),
    "attention_mass": (
        "causal ? Math.min(count, tokens - t) : count",
        "count",
        "mass is divided by all queries, including those that do not see the token",
    ),
}
"""A usual mistake in a function of docs/js/kv.js: its text, the mistake, and the likely cause."""


@pytest.mark.parametrize("name", MISTAKES)
def test_the_card_names_a_mistake_in_javascript(suite, node, tmp_path, name):
    right, wrong, cause = MISTAKES[name]
    functions = "const functions = Object.keys(kv).filter((name) => kv[name].signature)"
    changes = {"program.mjs": (functions, f'const functions = ["{name}"]'), "kv.js": (right, wrong)}
    for file, (old, new) in changes.items():
        text = (ROOT / "docs/js" / file).read_text()
        assert text.count(old) == 1, old
        (tmp_path / file).write_text(text.replace(old, new))
    (tmp_path / "package.json").write_text('{"type": "module"}')
    command, file = shlex.join([node, str(tmp_path / "program.mjs")]), tmp_path / "report.json"
    suite("--command", command, "--examples", "5", "--report-json", str(file), only=())
    (module,) = json.loads(file.read_text())["modules"]
    (card,) = (card for card in module["functions"] if card["failures"])
    failure = card["failures"][0]
    assert (card["function"], failure["level"]) == (name, "values")
    assert any(cause in text for text in failure["causes"]), failure["causes"]
    assert f"| {command}" in failure["claims"][0]["snippet"]


@pytest.mark.parametrize("language", ["javascript", "c"])
def test_the_programs_of_the_docs_pass_the_whole_suite(request, tmp_path, language):
    if language == "javascript":
        command = [request.getfixturevalue("node"), "docs/js/program.mjs"]
    else:
        compiler = shutil.which("cc") or pytest.skip("needs a C compiler")
        command = [f"{tmp_path}/kv"]
        build = [compiler, "-O2", "-o", *command, "docs/c/kv.c", "-lm"]
        subprocess.run(build, cwd=ROOT, check=True)
    words = ["--command", shlex.join(command), "--examples", "2", "-q", "-p", "no:cacheprovider"]
    done = run_python("-m", "spec_tests", *words)
    assert done.returncode == pytest.ExitCode.OK, done.stdout + done.stderr
