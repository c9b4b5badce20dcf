"""Every kernel is compiled ahead of time; one that exceeds its budget is reported."""

from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from unittest.mock import Mock

import pytest

from optimized import kernels
from optimized.bench import aot, machine_code, operations
from optimized.bench.machine_code import SHARED, KernelResources
from optimized.bench.operations import compiled_operations
from optimized.bench.report import ROOT

COMPILED = compiled_operations()
(SMD,) = (operation for operation in COMPILED if operation.name == "smd")
FITS = KernelResources(registers=8, spilled=0, shared=0)


def test_every_kernel_is_compiled():
    assert {name for x in COMPILED for name in x.name.split(" + ")} >= {*kernels.__all__}
    assert len({operation.title for operation in COMPILED}) == len(COMPILED)
    assert all(operation.launches for operation in COMPILED)


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
@pytest.mark.parametrize("words", [[], ["--all"]])
def test_what_spills_or_does_not_fit_or_compile_is_a_miss(
    words, code, triton, misses, monkeypatch, capsys
):
    """Without `--all` only one target is compiled."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(aot, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(aot, "installed", lambda _: triton)
    monkeypatch.setattr(operations, "compiled_operations", lambda: [SMD])
    monkeypatch.setattr(machine_code, "compile_kernel", Mock(side_effect=repeat(code)))
    with pytest.raises(SystemExit) as ended:
        aot.main(words)
    lines = capsys.readouterr().out.splitlines()
    misses = [target for target in misses if words or target == aot.DEFAULT]
    assert ended.value.code == bool(misses)
    missed = [line for line in lines if line.startswith("MISS")]
    assert all(f"on {name} " in line for name, line in zip(misses, missed, strict=True))
    over = [line for line in lines if line.startswith("OVER")]
    assert len(over) == (1 + len(words)) * (triton == "3.6.0")


def test_ci_compiles_with_the_triton_whose_spills_are_misses():
    assert f"\ntriton=={aot.CHECKED_WITH}." in (ROOT / "constraints.txt").read_text()
