"""The benchmark command, its baselines, and the agreement of pages with the files of results."""

import json
import re
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from optimized.bench import report
from spec_tests.index import ROOT

PAGE = ROOT / "docs/performance.md"


@pytest.fixture(scope="module")
def dry(tmp_path_factory):
    """A dry run of most operations: the file of its rows, and the actions in order."""
    pytest.importorskip("triton")
    if torch.cuda.is_available():
        pytest.skip("with a GPU kernels are not interpreted")
    from optimized.bench import gpu_benchmarks
    from optimized.bench.operations import operations

    few, seen = [], set[tuple[str, str]]()
    for one in operations(small=True):  # one set of options or bits of each is enough
        if one.step not in ("sweep", "pack") or (one.step, one.name) not in seen:
            few.append(one)
        seen.add((one.step, one.name))
    file, done = tmp_path_factory.mktemp("cuda") / "rows.json", []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu_benchmarks, "operations", lambda _: few)
        patch.setattr(gpu_benchmarks, "disagreeing", lambda *given: done.append(given) or set())
        patch.setattr(gpu_benchmarks, "copying", lambda _: done.append("copy") or 1e9)
        patch.setattr(
            gpu_benchmarks, "interpreted", lambda _: gpu_benchmarks.outputs(torch.device("cpu"))
        )
        clock = gpu_benchmarks.DryClock(torch.device("cpu"))
        rows = gpu_benchmarks.run(clock, [*gpu_benchmarks.STEPS, "bits"], file)
    return rows, json.loads(file.read_text()), done


def test_a_run_on_a_gpu_begins_with_the_agreement_of_every_kernel(dry):
    from optimized import kernels

    assert dry[2] == [(kernels.__all__, "cpu"), "copy"]
    assert dry[1]["runs"][0]["agreed"] == kernels.__all__


def test_the_page_lists_the_steps_in_the_order_of_measurement():
    pytest.importorskip("triton")
    from optimized.bench.gpu_benchmarks import VALUE, asked
    from optimized.bench.operations import STEPS

    steps = [step for step, _ in VALUE]
    steps += [one.step for one in asked([*STEPS], small=False) if one.step not in steps][:1]
    listed = PAGE.read_text().partition("come first:")[2].partition("A figure is")[0]
    assert re.findall(r"`(\w+)`: ", listed) == [*steps, "bits"]


def test_a_step_alone_asks_for_the_agreement_of_its_own_kernels():
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks
    from optimized.bench.operations import operations

    chosen = [one for one in operations(small=True) if one.step == "select"]
    found = set(gpu_benchmarks.launchers_of(chosen))
    assert found >= {"hubkv_refine", "retain"}
    assert not found & {"graphkv_refine", "evict", "hex_compress"}


class Bench:
    """The benchmark command with small operations, some of which may be set to fail."""

    def __init__(self, gpu, file, patch):
        from optimized.bench.operations import Operation, OperationInputs

        self.gpu, self.file, self.done = gpu, file, []
        self.apart, self.failing, self.code = set[str](), dict[str, BaseException](), "a"
        self.refused = set[str]()

        def one(step, name, shape):
            def kernel(x):
                self.done.append((name, shape))
                if reason := self.failing.get(name):
                    raise reason
                return x + 1

            def inputs(device):
                if reason := self.failing.get(f"inputs of {name}"):
                    raise reason
                return OperationInputs(dict(x=torch.zeros(4, device=device)))

            return Operation(step, name, shape, inputs, kernel)

        names = [("select", "retain", "[4]"), ("select", "retain", "[5]")]
        names += [("evict", "evict", "[4]")]
        few = [one(*name) for name in names]

        def disagreeing(names, _):
            self.done.append(sorted(names))
            return self.apart & {*names}

        patch.setattr(gpu, "operations", lambda _: few)
        patch.setattr(gpu, "disagreeing", disagreeing)
        patch.setattr(gpu, "admitted", self.admitted)
        patch.setattr(gpu, "code", lambda: self.code)
        patch.setenv("TRITON_INTERPRET", "1")

    def admitted(self, _clock, one, _inputs):
        """Stand for the gate, which refuses what the test names."""
        from optimized.bench.kernel_gate import Failed

        if one.shape in self.refused:
            raise Failed("no kernel launches")
        return {"some_kernel": 1}

    def __call__(self, *words):
        """Return what a run did: the agreement tests it ran, and the operations it called."""
        self.done.clear()
        self.gpu.main(["--dry-run", "--json", str(self.file), *words])
        return list(dict.fromkeys(map(str, self.done)))

    @property
    def rows(self):
        """The operation and shape of each row in the file, run by run."""
        runs = json.loads(self.file.read_text())["runs"]
        return [[(row["operation"], row.get("shape")) for row in run["rows"]] for run in runs]


@pytest.fixture
def bench(monkeypatch, tmp_path):
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks

    return Bench(gpu_benchmarks, tmp_path / "rows.json", monkeypatch)


def test_only_rows_that_hold_a_text_are_measured(bench):
    assert bench("select", "--only", "[5]") == ["['retain']", "('retain', '[5]')"]
    assert bench.rows == [[("retain", "[5]")]]


def test_a_text_that_no_row_holds_is_refused_with_those_there_are(bench, capsys):
    with pytest.raises(SystemExit) as end:
        bench("select", "--only", "HEX-5")
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "HEX-5" in said
    assert "retain [4]" in said
    assert "retain [5]" in said
    assert "evict" not in said
    assert not bench.file.exists()


def test_a_run_goes_on_where_one_was_cut_short(bench):
    bench.failing["evict"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        bench("select", "evict")
    assert bench.rows == [[("retain", "[4]"), ("retain", "[5]")]]
    bench.failing.clear()
    assert bench("select", "evict") == ["[]", "('evict', '[4]')"]
    assert bench.rows == [[("retain", "[4]"), ("retain", "[5]"), ("evict", "[4]")]]


def test_what_is_on_file_is_measured_again_if_asked_and_the_rest_stays(bench):
    bench("select", "evict")
    again = bench("select", "--only", "[5]", "--anew")
    assert again == ["['retain']", "('retain', '[5]')"]
    assert bench.rows == [[("retain", "[4]"), ("evict", "[4]"), ("retain", "[5]")]]


def test_bits_are_compared_anew_and_written_once(bench, monkeypatch):
    outputs = bench.gpu.outputs
    monkeypatch.setattr(bench.gpu, "interpreted", lambda only: outputs("cpu", only))
    for _ in range(2):
        assert bench("bits", "--only", "retain")[1:] == ["('retain', '[4]')", "('retain', '[5]')"]
    assert bench.rows == [[("retain [4]", None), ("retain [5]", None)]]


def test_rows_of_other_code_are_rows_of_another_run(bench):
    bench("evict")
    bench.code = "b"
    assert bench("evict") == ["['evict']", "('evict', '[4]')"]
    assert bench.rows == [[("evict", "[4]")]] * 2


@pytest.mark.parametrize("what", ["retain", "inputs of retain"])
def test_a_row_that_fails_is_printed_and_written_and_ends_the_run_amiss_after_the_others(
    bench, what
):
    bench.failing[what] = torch.OutOfMemoryError("no room")
    for _ in range(2):  # a failed row in the file fails again
        with pytest.raises(SystemExit, match=r"retain \[4\].*no room\n.*retain \[5\]"):
            bench("select", "evict")
        assert bench.rows == [[("retain", "[4]"), ("retain", "[5]"), ("evict", "[4]")]]


def test_what_does_not_agree_is_not_measured_and_the_rest_is(bench):
    bench.apart = {"retain"}
    with pytest.raises(SystemExit, match=r"retain \[4\].*does not agree"):
        bench("select", "evict")
    assert bench.done[1:] == [("evict", "[4]")] * len(bench.done[1:])
    assert bench.rows == [[("evict", "[4]")]]
    bench.apart = set()
    assert bench("select") == ["['retain']", "('retain', '[4]')", "('retain', '[5]')"]


def test_what_the_gate_refuses_is_neither_timed_nor_on_file(bench):
    bench.refused = {"[4]"}
    with pytest.raises(SystemExit, match=r"retain \[4\].*no kernel launches"):
        bench("select")
    assert set(bench.done[1:]) == {("retain", "[5]")}
    assert bench.rows == [[("retain", "[5]")]]


def test_a_run_out_of_time_names_what_is_left_and_the_next_goes_on(bench, capsys):
    bench("select", "evict", "--only", "retain [4]")
    assert bench("select", "evict", "--seconds", "0") == ["['evict']"]
    said = capsys.readouterr().out
    assert said.endswith("goes on with 2 rows:\n  retain [5]\n  evict [4]\n")
    assert bench("select", "evict") == ["[]", "('retain', '[5]')", "('evict', '[4]')"]


def test_seconds_below_zero_are_refused(bench, capsys):
    with pytest.raises(SystemExit):
        bench("select", "--seconds", "-1")
    assert "at least 0, not -1" in capsys.readouterr().err


def test_a_process_that_lost_the_gpu_leaves_the_rest_to_another(bench, monkeypatch):
    gone = []
    monkeypatch.setattr(bench.gpu.DryClock, "lost", lambda _: bench.done[-1] == ("retain", "[5]"))
    monkeypatch.setattr(bench.gpu.os, "execv", lambda _, words: gone.append(words))
    bench("select", "evict", "--anew")
    assert bench.rows == [[("retain", "[4]"), ("retain", "[5]")]]
    assert gone[0][1:4] == ["-m", "optimized.bench", "cuda"]
    assert "--anew" not in gone[0]
    assert "evict" in gone[0]


@pytest.fixture
def gpu(monkeypatch):
    """A fake GPU clock, and its actions in order."""
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks

    done, ticks = [], iter(range(0, 10**4, 5))

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.at = next(ticks)
            done.append("event")

        def elapsed_time(self, other):
            assert "wait" in done, "nobody waited for the event"
            return float(other.at - self.at)

    class Stream:
        def wait_stream(self, _):
            done.append("other stream")

    class Graph:
        def replay(self):
            done.append("replay")

    @contextmanager
    def capture(graph):
        assert isinstance(graph, Graph)
        done.append("capture")
        yield

    fakes = dict(Event=Event, Stream=Stream, current_stream=Stream, CUDAGraph=Graph, graph=capture)
    fakes |= dict(stream=nullcontext, synchronize=lambda: done.append("wait"))
    fakes |= dict(set_sync_debug_mode=lambda mode: done.append(f"sync {mode}"))
    fakes |= dict(get_device_properties=lambda _: SimpleNamespace(L2_cache_size=8))
    for name, fake in fakes.items():
        monkeypatch.setattr(torch.cuda, name, fake)
    clock = gpu_benchmarks.Clock(torch.device("cpu"))
    monkeypatch.setattr(clock, "flushed", SimpleNamespace(zero_=lambda: done.append("flush")))
    return clock, done


def test_a_gpu_is_timed_between_events_after_a_flush_on_inputs_drawn_anew(gpu):
    clock, done = gpu
    seconds = clock.each(lambda: done.append("call"), lambda n: done.append(f"draw {n}"), 3)
    assert seconds == [0.005] * 3
    each = ["flush", "event", "call", "event"]
    assert done == ["draw 0", *each, "draw 1", *each, "draw 2", *each, "wait"]


def test_a_graph_is_captured_of_what_was_seen_to_wait_for_nothing(gpu):
    clock, done = gpu
    clock.captured(lambda: done.append("call"))()
    first = ["other stream", "sync error", "call", "sync default", "other stream"]
    assert done == [*first, "capture", "call", "replay"]
    done.clear()

    def waits():
        if done[-1] == "sync error":
            raise RuntimeError("called a synchronizing CUDA operation")

    with pytest.raises(RuntimeError, match="synchronizing"):
        clock.captured(waits)
    assert done[-1] == "sync default"
    assert not clock.lost()


def test_a_gpu_is_lost_to_who_failed_to_capture_or_read_what_is_not_there(gpu, monkeypatch):
    from optimized.bench import gpu_benchmarks

    clock, done = gpu

    def fails():
        if done[-1] == "capture":
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="capturing"):
        clock.captured(fails)
    assert clock.lost()

    def illegal():
        raise RuntimeError("an illegal memory access was encountered")

    other = gpu_benchmarks.Clock(torch.device("cpu"))
    assert not other.lost()
    monkeypatch.setattr(torch.cuda, "synchronize", illegal)
    assert other.lost()


def test_agreement_is_asked_once_more_of_what_fails_among_others(monkeypatch):
    from optimized.bench import agreement

    asked = []

    def pytest_(_, *words):
        names = words[words.index("-k") + 1]
        asked.append(names)
        assert " or " in names or "-n" not in words, "not a process of its own"
        said = "".join(
            f'<testcase name="test_calling_convention[optimized-{name}]"><failure/></testcase>'
            for name in ("retain", "evict")
            if f"-{name}]" in names
        )
        file = next(word for word in words if word.startswith("--junitxml="))
        with open(file.partition("=")[2], "w") as report_file:
            report_file.write(
                f"<suite><testcase name='test_calling_convention[optimized-smd]'/>{said}</suite>"
            )
        return names != "[optimized-evict]"

    monkeypatch.setattr(agreement, "run_pytest", pytest_)
    assert agreement.disagreeing(["retain", "smd", "evict"], "cpu") == {"retain"}
    assert sorted(asked[1:]) == ["[optimized-evict]", "[optimized-retain]"]
    assert agreement.disagreeing([], "cpu") == set()


@pytest.mark.parametrize("says", ["", "<suite/>"])
def test_where_agreement_breaks_off_nothing_is_known_to_agree(monkeypatch, says):
    from optimized.bench import agreement

    def pytest_(*words):
        if says:
            file = next(word for word in words if word.startswith("--junitxml="))
            Path(file.partition("=")[2]).write_text(says)
        return 3

    monkeypatch.setattr(agreement, "run_pytest", pytest_)
    assert agreement.disagreeing(["smd", "evict"], "cpu") == {"smd", "evict"}


def test_options_leave_a_module_what_others_add_to_it():
    pytest.importorskip("triton")
    from optimized.bench.operations import override_launch_options
    from optimized.kernels.hex import attention

    before = attention.RESIDENT
    with override_launch_options(dict(RESIDENT=before + 1, num_warps=2)):
        assert before + 1 == attention.RESIDENT
        assert attention.__dict__.setdefault("of_the_interpreter", 1) == 1
    assert before == attention.RESIDENT
    assert attention.__dict__.pop("of_the_interpreter") == 1


def test_every_timed_kernel_launches_at_its_gate(dry):
    """The kernels of each call at full size are among those that the gate launched."""
    from optimized.bench.kernel_gate import gate_of
    from optimized.bench.operations import operations

    launched = {(row["operation"], row.get("shape")): row.get("launches") for row in dry[0]}
    for one in operations(small=False):
        if one.kernel is None or one.options or one.step == "pack":
            continue
        small = gate_of(one)
        timed = {launch.kernel.fn.__name__ for launch in one.launches}
        assert timed, one.title
        assert timed <= {*launched[small.name, small.shape]}, one.title


def test_every_timed_operation_has_a_gate_of_its_width_and_dtype():
    pytest.importorskip("triton")
    from optimized.bench.kernel_gate import gate_of
    from optimized.bench.operations import operations

    for one in operations(small=False):
        if one.kernel is not None:
            small = gate_of(one)
            assert re.findall(r"b?float\d+", small.shape) == re.findall(r"b?float\d+", one.shape)
            assert ("128]" in small.shape) == ("128]" in one.shape)


def test_an_operation_that_launches_nothing_or_is_wrong_fails_its_gate():
    pytest.importorskip("triton")
    from optimized import kernels, vector
    from optimized.bench import kernel_gate

    cpu = torch.device("cpu")
    (one,) = (x for x in kernel_gate.operations(small=True) if x.name == "evict")
    with pytest.raises(kernel_gate.Failed, match="no kernel launches for evict"):
        kernel_gate.check_gate(one._replace(kernel=vector.evict), cpu)

    def wrong(keys, values, kept):
        found = kernels.evict(keys, values, kept)
        return found._replace(keys=found.keys + 1)

    with pytest.raises(kernel_gate.Failed, match="evict"):
        kernel_gate.check_gate(one._replace(kernel=wrong), cpu)
    with pytest.raises(kernel_gate.Failed, match="does not launch other_kernel"):
        kernel_gate.check_admits(kernel_gate.check_gate(one, cpu), {"other_kernel"}, one.title)


def test_rows_come_in_the_order_of_their_value():
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks

    some = gpu_benchmarks.asked([*gpu_benchmarks.STEPS], False)
    steps = list(dict.fromkeys(one.step for one in some))
    assert steps == ["decode", "select", "pack", "mass", "graph", "evict", "fp16", "sweep"]
    assert all("-4" in one.title for one in some[:8])


def test_a_run_times_every_kernel_and_what_it_is_raced_against(dry):
    from optimized import kernels

    rows, file, _ = dry
    assert file["runs"][0]["rows"] == rows
    sides = [row[name] for row in rows for name in ("kernel", "graph", "eager") if name in row]
    assert all(side["us"] > 0 for side in sides)
    raced = [
        row for row in rows if row["step"] in ("decode", "pack", "select", "graph", "mass", "evict")
    ]
    assert all(
        row["eager_ratio"] == row["eager"]["us"] / row["kernel"]["us"]
        for row in raced
        if row["operation"] != "hex_decode"  # its step in PyTorch is not timed
    )
    for row in rows:
        if "fp16" in row:
            there = [side["us"] for side in row["fp16"]["sides"].values() if "us" in side]
            assert row["fp16"]["us"] == min(there)
    timed = " ".join(row["operation"] for row in raced)
    # these two are timed only as parts of other operations
    assert set(kernels.__all__) - {"smd", "attention_mass"} <= set(re.findall(r"\w+", timed))


def test_a_run_says_where_and_of_what_it_is(dry):
    about = dry[1]["runs"][0]["about"]
    assert dry[1]["schema_version"] == 1
    assert about["dry_run"]
    names = ("device", "python", "torch", "triton", "commit", "code", "date")
    assert all(about[name] for name in names)


def test_a_kernel_that_runs_twice_gives_the_same_bits(dry):
    bits = [row for row in dry[0] if row["step"] == "bits"]
    assert bits
    assert not [row for row in bits if row["differ"] or not row["numbers"]]


def test_a_dry_run_is_never_shown_as_measured(dry, tmp_path):
    file = tmp_path / "measured.json"
    assert report.gpu_measurements_markdown(file).startswith("Nothing yet")
    file.write_text(json.dumps(dry[1]))
    assert report.gpu_measurements_markdown(file).startswith("Nothing yet")
    dry[1]["runs"][0]["about"]["dry_run"] = False
    file.write_text(json.dumps(dry[1]))
    assert "hex_attention" in report.gpu_measurements_markdown(file)
    dry[1]["runs"][0]["about"]["dry_run"] = True


def test_a_dry_run_is_not_written_where_measurements_are(capsys):
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks

    with pytest.raises(SystemExit):
        gpu_benchmarks.arguments(["--dry-run", "--json", str(report.MEASURED)])
    assert "measured.json" in capsys.readouterr().err


def test_inputs_are_drawn_anew_but_for_masks_and_places():
    pytest.importorskip("triton")
    from optimized.bench import gpu_benchmarks
    from optimized.bench.operations import operations

    for one in operations(small=True):
        inputs = one.inputs(torch.device("cpu"))
        before = [x.clone() for x in gpu_benchmarks.tensors(list(inputs))]
        gpu_benchmarks.redraw(inputs, 1)
        pairs = zip(before, gpu_benchmarks.tensors(list(inputs)), strict=True)
        for old, new in pairs:
            drawn = new.is_floating_point() or new.dtype in (torch.int32, torch.uint8)
            assert torch.equal(old, new) == (not drawn or not new.numel()), one
