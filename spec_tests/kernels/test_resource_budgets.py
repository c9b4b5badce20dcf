"""Every kernel is compiled ahead of time; one that exceeds its budget is reported."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from optimized import kernels
from optimized.bench import aot, machine_code, operations
from optimized.bench.launch_recorder import Operators
from optimized.bench.machine_code import SHARED, KernelResources
from optimized.bench.operations import compiled_operations
from optimized.bench.report import ROOT

COMPILED = compiled_operations()
FITS = KernelResources(registers=8, spilled=0, shared=0)


def test_every_kernel_is_compiled():
    assert {name for one in COMPILED for name in one.name.split(" + ")} >= {*kernels.__all__}
    assert len({one.title for one in COMPILED}) == len(COMPILED)


@pytest.mark.parametrize("one", COMPILED, ids=lambda one: one.title)
def test_a_call_without_values_launches_kernels(one):
    assert one.launches


@pytest.mark.parametrize(
    ("code", "triton", "misses"),
    [
        (FITS, "3.7.1", []),
        (RuntimeError("PassManager::run failed\nno such target"), "3.7.1", [*SHARED]),
        (FITS._replace(shared=100_000), "3.7.1", ["gfx942"]),
        (FITS._replace(shared=200_000), "3.7.1", [80, "gfx942"]),
        (FITS._replace(spilled=8), "3.7.1", [80, 90]),
        (FITS._replace(spilled=8), "3.6.0", []),
    ],
)
def test_what_spills_or_does_not_fit_or_compile_is_a_miss(
    code, triton, misses, monkeypatch, capsys
):
    def compiled(*_):
        if isinstance(code, Exception):
            raise code
        return code

    (smd,) = (one for one in COMPILED if one.name == "smd")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(aot, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(aot, "installed", lambda _: triton)
    monkeypatch.setattr(machine_code, "compile_kernel", compiled)
    monkeypatch.setattr(operations, "compiled_operations", lambda: [smd])
    with pytest.raises(SystemExit) as ended:
        aot.main(["--all"])
    assert ended.value.code == bool(misses)
    lines = capsys.readouterr().out.splitlines()
    missed = [line for line in lines if line.startswith("MISS")]
    assert len(missed) == len(misses)
    assert all(
        f"smd_kernel on {target} " in line for line, target in zip(missed, misses, strict=True)
    )
    assert len([line for line in lines if line.startswith("OVER")]) == 2 * (triton == "3.6.0")


def test_only_one_target_is_compiled_unless_all_are_asked_for(monkeypatch, capsys):
    (smd,) = (one for one in COMPILED if one.name == "smd")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(aot, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(machine_code, "compile_kernel", lambda *_: FITS)
    monkeypatch.setattr(operations, "compiled_operations", lambda: [smd])
    for words, targets in (([], [aot.DEFAULT]), (["--all"], [*SHARED])):
        with pytest.raises(SystemExit):
            aot.main(words)
        said = capsys.readouterr().out
        assert [target for target in SHARED if f" {target} " in said] == targets


def test_operators_are_counted_that_write_to_memory_of_the_device():
    with Operators(torch.device("meta")) as operators:
        x = torch.empty(4, 4, device="meta")
        x.T[1:].unsqueeze(0)
        x.new_empty(3)
        torch.ones(3).add_(1)
        assert operators.count == 0
        torch.mm(x, x)
        x.add_(1)
        x.T.contiguous().split(2)
    assert operators.count == 3


def test_ci_compiles_with_the_triton_whose_spills_are_misses():
    assert f"\ntriton=={aot.CHECKED_WITH}." in (ROOT / "constraints.txt").read_text()
