"""Refused commands print one line, exit with status 2, and leave no files."""

import json
import logging
import os
import shutil
import subprocess
import sys
from errno import ENOSPC

import pytest

pytest.importorskip("transformers")

from transformers import AutoModelForCausalLM

from optimized.study import command as job
from optimized.study import evaluate
from spec_tests.index import ROOT
from spec_tests.internal.study.command_runner import main


@pytest.fixture
def spoiled(command, tmp_path):
    """Return a folder of models and texts that cannot be read, and of names that are taken."""
    for name in ("damaged", "misconfigured", "gated"):
        shutil.copytree(command.model, tmp_path / name)
    weights = tmp_path / "damaged" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    config = tmp_path / "misconfigured" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_size": "wide"}))
    (tmp_path / "gated" / "gate.safetensors").mkdir()
    (tmp_path / "short.txt").write_text("One line.\n" * 3)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "taken").mkdir()
    return tmp_path


MODEL = "--model must be `words`, `smollm2`, or a folder or an id"
TEXT = "--text must be prose, code, noise, or a file of UTF-8 text, got "


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ("--model no/such/model", MODEL),
        ("--model {}/damaged", MODEL),
        ("--model {}/misconfigured", MODEL),
        ("--systems snapkv zip", "system must be a known name, got 'zip'"),
        ("--systems snapkv>gear", "since the command measures one of them, got 'snapkv>gear'"),
        ("--model {}/gated", "gate.safetensors must hold a gate for each of 2 layers"),
        ("--systems fastkvzip", "--systems must include a system without gates"),
        ("--device cuda:99", "--device must be usable here, got 'cuda:99'"),
        ("--text nowhere.txt", TEXT + "nowhere.txt"),
        ("--text {}/bytes", TEXT),
        ("--text {}/short.txt", "the text must have at least"),
        ("--context 500", "--context must leave room for 16 tokens among the model's 512"),
        ("--context 40", "--context must leave room for 1 tasks"),
        ("--json no/folder/x.json", "--json must be in a folder that exists"),
        ("--json {}/taken", "--json must not exist, got "),
        ("--out {}/taken", "--out must be new, or hold a run that is not finished, got "),
        ("--tasks words", "--tasks must be one of number, values, word"),
        ("--tasks {}/none.jsonl", "--tasks must be a file of JSON lines"),
        ("--out {}/" + 300 * "x", "--out must be where one can write"),
    ],
)
def test_what_cannot_be_had_is_refused_in_one_line_before_anything_is_measured(
    command, capsys, monkeypatch, spoiled, options, named
):
    monkeypatch.setattr(evaluate, "Batch", None)
    said = command.refused(capsys, *options.format(spoiled).split())
    assert named in said
    assert said.startswith("python -m optimized: error: ")
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "value"),
    [("--ratios", "1"), ("--ratios", "x"), ("--needles", "-1"), ("--seed", "4294967296")],
)
def test_a_number_out_of_range_is_refused(command, capsys, option, value):
    assert f"argument {option}" in command.refused(capsys, option, value).splitlines()[-1]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("hubkv.gamma", "--set must be NAME.SETTING=VALUE, such as hubkv.gamma=0.7"),
        ("hubk.gamma=0.7", "snapkv, streaming_llm, got 'hubk': did you mean 'hubkv'?"),
        ("random.seed=3", "--set NAME must be one of hubkv, graphkv, nms, hex, control,"),
        ("hubkv.gama=0.7", "power, epsilon, got 'gama': did you mean 'gamma'?"),
        ("kvzip.prompt=1", "--set kvzip.SETTING must be one of chunk, sinks, recent, got 'prompt'"),
        ("hubkv.gamma=1", "--set hubkv.gamma must be a number in (0, 1), got '1'"),
        ("hubkv.maximum=0.1", "--set hubkv.maximum must be >= minimum, which is 0.8, got 0.1"),
        ("hex.mode=ful", "must be 'append', 'full' or 'oracle', got 'ful': did you mean 'full'?"),
        ("graphkv.clamp=yes", "--set graphkv.clamp must be True or False, got 'yes'"),
        ("snapkv.kernel=4", "--set snapkv.kernel must be an integer >= 1, odd, got '4'"),
        ("h2o.recent=-1", "--set h2o.recent must be an integer >= 0 or None, got '-1'"),
        ("nms.factor=0.1", "--set nms.factor must be of a system that is measured, got --systems"),
    ],
)
def test_a_setting_that_cannot_be_had_is_refused_before_a_model_is_read(
    command, capsys, monkeypatch, given, said
):
    monkeypatch.setattr(job, "load", None)
    line = command.refused(capsys, "--set", given)
    assert line.startswith("python -m optimized: error: --set ")
    assert said in line
    assert len(line.splitlines()) == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{}", "KeyError('context')"),
        ("[1]", "must be an object with context"),
        ('{"context": "a", "question": "b", "answers": []}', "and a list of answers"),
        ('{"context": "a", "input": "b", "answers": ["c"], "metric": "bleu"}', "got 'bleu'"),
    ],
)
def test_a_wrong_line_of_own_data_is_named(command, capsys, tmp_path, line, said):
    (tmp_path / "own.jsonl").write_text(
        '{"context": "a", "question": "b", "answers": "c"}\n' + line + "\n"
    )
    told = command.refused(capsys, "--tasks", str(tmp_path / "own.jsonl"))
    assert "own.jsonl line 2 must" in told
    assert said in told


def test_a_model_that_is_not_reached_is_said_once(command, capsys, monkeypatch):
    hub = logging.getLogger("huggingface_hub")
    hub.setLevel(logging.WARNING)

    def unreached(name, **_):
        assert not hub.isEnabledFor(logging.WARNING)  # each retry warns
        raise OSError(f"no connection for {name}")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", unreached)
    said = command.refused(capsys, "--model", "some/model")
    assert "no connection for some/model" in said
    assert len(said.splitlines()) == 1


def test_a_report_that_cannot_be_written_is_said_below_the_table_and_the_run_goes_on(
    command, capsys, monkeypatch, tmp_path
):
    def full(*_):
        raise OSError(ENOSPC, "No space left on device")

    asked = command.arguments("--systems", "full", "--out", str(tmp_path / "out"))
    write = job.write_atomically
    monkeypatch.setattr(job, "write_atomically", full)
    with pytest.raises(SystemExit) as ended:
        main(asked)
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert "bits/byte" in said.out
    assert said.err.startswith("python -m optimized: error: the report must be where one can write")
    monkeypatch.setattr(job, "write_atomically", write)
    monkeypatch.setattr(evaluate, "Batch", None)  # nothing is measured again
    main(asked)
    assert (tmp_path / "out" / "report.html").exists()


def test_a_name_that_is_not_utf_8_is_written_to(command, tmp_path):
    out = tmp_path / os.fsdecode(b"\xff")
    main(command.arguments("--systems", "full", "--out", str(out)))
    assert (out / "report.html").exists()


def test_the_module_runs_as_a_command():
    command = [sys.executable, "-m", "optimized", "--ratios", "2"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    assert "must be at least 0 and below 1, got 2" in ended.stderr.splitlines()[-1]
