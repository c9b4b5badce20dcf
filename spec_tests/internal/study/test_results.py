"""A run in parts: killed and continued, on many machines, in ranks."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from optimized.study import evaluate
from spec_tests.index import ROOT
from spec_tests.internal.study.command_runner import main

RUN = ("--systems", "random", "snapkv+hubkv", "hex-4", "--ratios", "0.5", "--documents", "7")
PARTS = (*RUN, "--batch", "1")


def figures(folder: Path) -> dict:
    """Return the figures in a folder, without what differs between two runs of the same options."""
    found = json.loads((folder / "figures.json").read_text())
    del found["command"]
    for row in found["rows"]:
        del row["seconds"]
    return found


@pytest.fixture
def whole(command):
    """The figures of a run in one piece."""
    command.figures(*PARTS)
    return figures(command.out)


def test_parts_are_merged_to_the_figures_of_one_run(command, whole, capsys, tmp_path):
    for part in ("1/3", "2/3", "3/3"):
        out = tmp_path / part[0]
        main(command.arguments(*PARTS, "--shard", part, "--out", str(out)))
        assert not (out / "figures.json").exists()
    folders = [str(tmp_path / name) for name in "123"]
    with pytest.raises(SystemExit):
        main(["merge", *folders[:2]])
    assert "must get all 7 batches of a run, got none of 2, 5" in capsys.readouterr().err
    main(["merge", *folders, "--out", str(tmp_path / "all")])
    assert figures(tmp_path / "all") == whole
    main(command.arguments(*PARTS, "--seed", "1", "--shard", "3/3", "--out", str(tmp_path / "x")))
    with pytest.raises(SystemExit):
        main(["merge", *folders[:2], str(tmp_path / "x")])
    assert "where documents, seed differ" in capsys.readouterr().err


def test_a_killed_run_continues_to_the_same_figures(command, whole, monkeypatch, capsys, tmp_path):
    measure, count = evaluate.Batch.measure, 0

    def killed(*given):
        nonlocal count
        count += 1
        if count == 4:
            raise KeyboardInterrupt
        measure(*given)

    monkeypatch.setattr(evaluate.Batch, "measure", killed)
    asked = command.arguments(*PARTS, "--out", str(tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        main(asked)
    assert ended.value.code == 130
    results = tmp_path / "out" / "results-1of1.jsonl"
    assert len(results.read_text().splitlines()) == 4
    results.write_text(results.read_text()[:-30])  # as if it was killed while writing
    with pytest.raises(SystemExit):
        main([*asked, "--seed", "1"])
    assert "must be new, or hold a run of the same options" in capsys.readouterr().err
    main(asked)
    assert count == 4 + 5
    assert figures(tmp_path / "out") == whole


def test_a_run_stops_at_its_minutes_and_says_how_to_go_on(command, whole, monkeypatch, capsys):
    from optimized.study import command as job

    out = command.folder / "out"
    asked = command.arguments(*PARTS, "--out", str(out))
    with monkeypatch.context() as patched:
        clock = iter(range(0, 1000, 40))
        patched.setattr(job, "monotonic", lambda: next(clock))
        main([*asked, "--minutes", "1"])
    assert f"The same command with --out {out} goes on." in capsys.readouterr().out
    assert not (out / "figures.json").exists()
    main(asked)
    assert figures(out) == whole


def test_two_ranks_give_the_figures_of_one_process(command, whole, tmp_path):
    launcher = "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "optimized"
    arguments = command.arguments(*PARTS, "--out", str(tmp_path / "two"))
    subprocess.run([sys.executable, *launcher, *arguments], cwd=ROOT, check=True)
    assert figures(tmp_path / "two") == whole
    assert len([*(tmp_path / "two").glob("results-*of2.jsonl")]) == 2
