"""The command on a foreign model, without matplotlib, and with too little memory."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import copytree

import pytest

pytest.importorskip("transformers")

from optimized.study import evaluate
from optimized.study.evaluate import Batch

ROOT = Path(__file__).parent.parent.parent.parent
WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from optimized.__main__ import main
from optimized.study import reference_check
reference_check.disagreeing_functions = list
main(sys.argv[1:])
"""


def test_matplotlib_is_needed_for_pictures_alone(checked_command, tmp_path):
    out = tmp_path / "report"
    usual = checked_command.arguments("--systems", "snapkv", "--ratios", "0.5", "--out", str(out))
    for more, status in ((("--pictures",), 2), ((), 0)):
        asked = [sys.executable, "-c", WITHOUT, *usual, *more]
        run = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == status, run.stderr
        assert out.exists() == (status == 0)
        if status:
            assert "--no-pictures must be given without matplotlib" in run.stderr
    assert "matplotlib is not installed" in (out / "report.html").read_text()


@pytest.mark.parametrize("part", ["config", "tokenizer_config"])
def test_code_of_a_models_folder_does_not_run(command, capsys, tmp_path, monkeypatch, part):
    folder = copytree(command.model, tmp_path / "foreign")
    ran = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w')\n")
    file = folder / f"{part}.json"
    auto = {
        "AutoConfig": "own.C",
        "AutoModelForCausalLM": "own.M",
        "AutoTokenizer": ["own.T", None],
    }
    named = {"model_type": "own"} if part == "config" else {"tokenizer_class": "Own"}
    file.write_text(json.dumps(json.loads(file.read_text()) | {"auto_map": auto} | named))
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    command.model = folder
    said = command.refused(capsys, "--text", str(folder / "text.txt"))
    assert "it needs Python code of its own, which the command never runs" in said
    assert not ran.exists()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")],
    ids=["host", "GPU"],
)
def test_a_row_without_memory_is_refused_by_itself(command, monkeypatch, error):
    def quantise(*_):
        raise error

    monkeypatch.setattr(Batch, "quantise", quantise)
    rows = command.figures("--systems", "gear", "snapkv", "--ratios", "0.5")["rows"]
    assert [row["refused"] is None for row in rows] == [True, False, True]
    assert "memory" in rows[1]["refused"]


def test_another_error_ends_the_run(command, monkeypatch):
    monkeypatch.setattr(evaluate, "kept_entries", lambda *_: [].pop())
    with pytest.raises(IndexError):
        command.figures("--systems", "snapkv", "--ratios", "0.5")


def test_a_folder_in_place_of_gates_is_refused(command, capsys, tmp_path):
    command.model = copytree(command.model, tmp_path / "gated")
    (command.model / "gate.safetensors").mkdir()
    said = command.refused(capsys, "--systems", "fastkvzip")
    assert "gate.safetensors must hold a gate for each of 2 layers" in said
