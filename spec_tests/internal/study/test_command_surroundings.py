"""The command on a foreign model, without matplotlib, and with too little memory."""

import json
import subprocess
import sys
from shutil import copytree

import pytest
import torch

pytest.importorskip("transformers")

from optimized.study.evaluate import Batch
from spec_tests.index import ROOT

WITHOUT = """
import sys
sys.modules["matplotlib"] = None
from optimized.__main__ import main
try:
    main([*sys.argv[1:], "--pictures"])
except SystemExit as refused:
    assert refused.code == 2
    main(sys.argv[1:])
"""


def test_matplotlib_is_needed_for_pictures_alone(command, tmp_path):
    usual = command.arguments("--systems", "full", "--out", str(tmp_path / "out"))
    run = subprocess.run([sys.executable, "-c", WITHOUT, *usual], cwd=ROOT, capture_output=True)
    assert run.returncode == 0
    assert "matplotlib is not installed" in (tmp_path / "out" / "report.html").read_text()
    assert b"--no-pictures must be given without matplotlib" in run.stderr


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
    assert "it needs Python code of its own, which is never run" in said
    assert not ran.exists()


@pytest.mark.parametrize(
    "error",
    [MemoryError(), torch.OutOfMemoryError("CUDA memory"), RuntimeError("can't allocate memory")],
    ids=["host", "GPU", "CPU"],
)
def test_a_row_without_memory_is_refused_by_itself(command, monkeypatch, error):
    def quantise(*_):
        raise error

    monkeypatch.setattr(Batch, "quantise", quantise)
    rows = command.figures("--systems", "gear", "snapkv", "--ratios", "0.5")["rows"]
    assert [row["refused"] is None for row in rows] == [True, False, True]
    assert "memory" in rows[1]["refused"]
    error = RuntimeError("an illegal memory access was encountered")
    with pytest.raises(RuntimeError, match="illegal"):
        command.figures("--systems", "gear", "--ratios", "0.5")
