"""The GPU command, tried with small operations on a CPU, and what it shows."""

import json

import pytest
import torch

from optimized.bench import report


class Bench:
    """The benchmark command with three small operations, some of which may be set to fail."""

    def __init__(self, gpu, file, patch):
        from optimized.bench.operations import Operation, OperationInputs

        self.gpu, self.file, self.done, self.code = gpu, file, [], "a"
        self.failing = dict[str, BaseException]()

        def operation(step, name, shape):
            def kernel(x):
                self.done.append(f"{name} {shape}")
                if reason := self.failing.get(name):
                    raise reason
                return x + 1

            inputs = OperationInputs(dict(x=torch.zeros(4)))
            return Operation(step, name, shape, lambda _: inputs, kernel)

        few = [operation("select", "retain", shape) for shape in ("[4]", "[5]")]
        few.append(operation("evict", "evict", "[4]"))
        patch.setattr(gpu, "operations", lambda _: few)
        patch.setattr(gpu, "disagreeing", lambda _: self.done.append("agreement") or set())
        patch.setattr(gpu, "digest", lambda *_: self.code)

    def __call__(self, *words):
        """Return what a run did: whether it tested agreement, and the operations it called."""
        self.done.clear()
        self.gpu.main(["--dry-run", "--json", str(self.file), *words])
        return list(dict.fromkeys(self.done))

    @property
    def rows(self):
        """The rows in the file, run by run."""
        runs = json.loads(self.file.read_text())["runs"]
        return [[f"{row['operation']} {row['shape']}" for row in run["rows"]] for run in runs]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks

    return Bench(gpu_benchmarks, tmp_path / "rows.json", monkeypatch)


def test_a_run_goes_on_where_one_was_cut_short_and_measures_again_what_is_asked_anew(bench):
    bench.failing["evict"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench("select", "evict")
    assert bench.done[0] == "agreement"
    assert bench.rows == [["retain [4]", "retain [5]"]]
    bench.failing.clear()
    assert bench("select", "evict") == ["evict [4]"]
    assert bench.rows == [["retain [4]", "retain [5]", "evict [4]"]]
    assert bench("--only", "[5]", "--anew") == ["agreement", "retain [5]"]
    assert bench.rows == [["retain [4]", "evict [4]", "retain [5]"]]
    bench.code = "b"
    assert bench("evict") == ["agreement", "evict [4]"]
    assert len(bench.rows) == 2


def test_a_row_that_fails_is_written_and_ends_the_run_amiss_after_the_others(bench):
    bench.failing["retain"] = torch.OutOfMemoryError("no room")
    for _ in range(2):  # a failed row in the file fails again
        with pytest.raises(SystemExit, match=r"retain \[4\].*no room\n.*retain \[5\]"):
            bench("select", "evict")
        assert bench.rows == [["retain [4]", "retain [5]", "evict [4]"]]


def test_a_row_holds_all_sides_of_an_operation_and_a_dry_run_is_never_shown(tmp_path):
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks
    from optimized.bench.operations import operations

    (operation,) = (x for x in operations(small=True) if x.name == "ragged_attention")
    row = gpu_benchmarks.measured(torch.device("cpu"), operation, 1e9)
    assert all(row[side]["us"] > 0 for side in ("kernel", "graph", "eager"))
    rivals = row["fp16"]["sides"]
    assert row["fp16"]["us"] == min(side["us"] for side in rivals.values() if "us" in side)
    assert "ModuleNotFoundError" in rivals["flashinfer"]["refused"]
    assert row["eager_ratio"] == row["eager"]["us"] / row["kernel"]["us"]
    assert row["of_copy"] == row["bytes_per_s"] / 1e9
    file = tmp_path / "rows.json"
    record = gpu_benchmarks.Record(gpu_benchmarks.about(torch.device("cpu"), ""), file)
    record.add(row)
    assert report.gpu_measurements_markdown(file).startswith("Nothing yet")
    record.about["dry_run"] = False
    record.add(row)
    assert "ragged_attention" in report.gpu_measurements_markdown(file)
