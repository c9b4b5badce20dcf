"""What the benchmarks race against does the same work, and pages say what files do."""

import json
import re

import pytest
import torch

import optimized
from optimized.bench import report
from optimized.bench.bench_snapkv import KEEP, TOKENS, layer, scores, usual_scores
from spec_tests.accuracy import assert_optimal
from spec_tests.index import ROOT

HELD = json.loads(report.PREDICTED.read_text())
PAGE = ROOT / "docs/performance.md"


@pytest.mark.parametrize("tokens", TOKENS[:2])
def test_the_usual_snapkv_ranks_as_ours_but_for_rounding(tokens):
    x = layer(tokens)
    assert_optimal(optimized.retain(scores(**x), keep=KEEP), usual_scores(**x))


def test_predictions_on_file_are_of_the_gates_there_are():
    pytest.importorskip("triton")
    from optimized.counts.gates import GATES

    gates = [
        (g.name, g.shape, *(float(x) if x else None for x in (g.goal, g.paper))) for g in GATES
    ]
    held = [
        tuple(row[name] for name in ("operation", "shape", "goal", "paper")) for row in HELD["rows"]
    ]
    assert held == gates, "run `python -m optimized.bench aot --write`"


def test_the_page_says_what_the_predictions_on_file_say():
    head, _, *lines = [line.split(" | ") for line in shown() if line.startswith("|")]
    assert "predicted" in head[2]
    assert "predicted" in head[4]
    for line, row in zip(lines, HELD["rows"], strict=True):
        operation, shape, first, first_bound, second, second_bound, goal, ratio, paper = line
        assert (operation.removeprefix("| "), shape) == (row["operation"], row["shape"])
        times = {"H100": dict(us=float(first), bound=first_bound)}
        times["H200"] = dict(us=float(second), bound=second_bound)
        assert times == row["predicted"]
        assert [float(x) if x else None for x in (goal, paper.removesuffix(" |"))] == [
            row["goal"],
            row["paper"],
        ]
        missed = bool(goal) and float(first) > float(goal)
        assert ("missed" in ratio) == missed


def test_the_figure_tells_those_who_cannot_see_it_which_goals_are_missed():
    words = shown()[0]
    missed = [r for r in HELD["rows"] if r["goal"] and r["predicted"]["H100"]["us"] > r["goal"]]
    factors = [f"{row['predicted']['H100']['us'] / row['goal']:.2f}" for row in missed]
    assert re.findall(r" by (\d+\.\d\d) ×", words) == factors
    assert f"{len(missed)} of " in words


def test_a_prediction_is_never_shown_as_measured():
    text = report.predictions()
    assert text.count("measured") == text.count("not measured") + text.count("Papers measured")
    assert '--8<-- "figures/predicted.txt"' in PAGE.read_text()


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    """A dry run of everything, what it printed its rows to, and what it did in which order."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("with a GPU kernels are not interpreted")
    from optimized.bench import cuda

    file, done = tmp_path_factory.mktemp("cuda") / "rows.json", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "agree", lambda names, device: done.append((names, device)))
        patch.setattr(cuda, "copying", lambda _: done.append("copy") or 1e9)
        patch.setattr(cuda, "interpreted", lambda: cuda.outputs(torch.device("cpu")))
        rows = cuda.run(cuda.DryClock(torch.device("cpu")), [*cuda.STEPS, "bits"], file)
    return rows, json.loads(file.read_text()), done


def test_a_run_on_a_gpu_begins_with_the_agreement_of_every_kernel(dry):
    from optimized import kernels

    assert dry[2] == [(list(kernels.LAUNCHERS), "cpu"), "copy"]


def test_disagreement_ends_a_run_before_anything_is_timed(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    from optimized.bench import agreement, cuda

    monkeypatch.setattr(agreement, "pytest", lambda *_: 1)
    with pytest.raises(SystemExit):
        cuda.run(cuda.DryClock(torch.device("cpu")), ["select"], tmp_path / "rows.json")
    assert not [*tmp_path.iterdir()]


def test_a_step_alone_asks_for_the_agreement_of_its_own_kernels():
    pytest.importorskip("triton")
    from optimized.bench import cuda
    from optimized.bench.operations import operations

    chosen = [one for one in operations(small=True) if one.step == "select"]
    assert set(cuda.concerned(chosen, ["select"])) == {"hubkv_refine", "retain"}


def test_a_run_times_every_kernel_and_what_it_is_raced_against(dry):
    from optimized import kernels

    rows, file, _ = dry
    assert file["runs"][0]["rows"] == rows
    sides = [row[name] for row in rows for name in ("kernel", "graph", "eager") if name in row]
    assert all(side["us"] > 0 for side in sides)
    raced = [
        row for row in rows if row["step"] in ("decode", "pack", "select", "graph", "mass", "evict")
    ]
    assert all(row["eager_ratio"] == row["eager"]["us"] / row["kernel"]["us"] for row in raced)
    for row in rows:
        if "fp16" in row:
            there = [side["us"] for side in row["fp16"]["sides"].values() if "us" in side]
            assert row["fp16"]["us"] == min(there)
    timed = " ".join(row["operation"] for row in raced)
    # alone they are timed with what they are part of
    assert set(kernels.LAUNCHERS) - {"smd", "attention_mass"} <= set(re.findall(r"\w+", timed))


def test_a_run_says_where_and_of_what_it_is(dry):
    about = dry[1]["runs"][0]["about"]
    assert dry[1]["schema_version"] == 1
    assert about["dry_run"]
    assert {"device", "python", "torch", "triton", "commit", "date"} <= about.keys()
    assert all(about[name] for name in ("device", "python", "torch", "triton", "commit", "date"))


def test_a_kernel_that_runs_twice_gives_the_same_bits(dry):
    bits = [row for row in dry[0] if row["step"] == "bits"]
    assert bits
    assert not [row for row in bits if row["differ"] or not row["numbers"]]


def test_a_dry_run_is_never_shown_as_measured(dry, tmp_path):
    file = tmp_path / "measured.json"
    assert report.measurements(file).startswith("Nothing yet")
    file.write_text(json.dumps(dry[1]))
    assert report.measurements(file).startswith("Nothing yet")
    dry[1]["runs"][0]["about"]["dry_run"] = False
    file.write_text(json.dumps(dry[1]))
    assert "hex_attention" in report.measurements(file)
    dry[1]["runs"][0]["about"]["dry_run"] = True


def test_a_dry_run_is_not_written_where_measurements_are(capsys):
    pytest.importorskip("triton")
    from optimized.bench import cuda

    with pytest.raises(SystemExit):
        cuda.arguments(["--dry-run", "--json", str(report.MEASURED)])
    assert "measured.json" in capsys.readouterr().err


def test_inputs_are_drawn_anew_but_for_masks_and_places():
    pytest.importorskip("triton")
    from optimized.bench import cuda
    from optimized.bench.operations import operations

    for one in operations(small=True):
        inputs = one.inputs(torch.device("cpu"))
        before = [x.clone() for x in cuda.tensors(list(inputs))]
        cuda.redraw(inputs, 1)
        pairs = zip(before, cuda.tensors(list(inputs)), strict=True)
        for old, new in pairs:
            drawn = new.is_floating_point() or new.dtype in (torch.int32, torch.uint8)
            assert torch.equal(old, new) == (not drawn or not new.numel()), one


def test_operations_bear_the_names_and_shapes_that_are_predicted():
    pytest.importorskip("triton")
    from optimized.bench.operations import operations

    goals = {(r["operation"], r["shape"]) for r in HELD["rows"] if r["goal"] is not None}
    # padded or not, mass is the same kernel
    goals = {one for one in goals if "padded" not in one[1] and one[0] != "attention_mass"}
    assert goals <= {(one.name, one.shape) for one in operations(small=False)}


def shown() -> list[str]:
    """What the page shows of predictions, line by line."""
    return report.predictions().splitlines()


def test_the_most_bytes_alive_at_once_are_counted():
    pytest.importorskip("transformers")
    from optimized.counts.memory import most_alive

    def call() -> int:
        first = torch.zeros(1000)
        size = first.neg().numel()
        del first
        return torch.zeros(size // 2).numel()

    assert most_alive(call) == (500, 8000)
