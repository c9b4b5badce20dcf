"""The table of resource budgets is complete, and the parser of machine code counts what runs."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from optimized import kernels
from optimized.bench import aot, machine_code
from optimized.bench import instruction_budgets as gates
from optimized.bench.instruction_budgets import GATES
from optimized.bench.machine_code import Code, parse_disassembly
from optimized.bench.report import ROOT

EVERY = [gate.title for gate in GATES]
LISTING = """
        .headerflags    @"EF_CUDA_SM90"
.text.kernel:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.128 R4, [R2.64] ;
.L_x_0:
        /*0020*/              @!P0 FADD R4, R4, R5 ;
        /*0030*/               @P1 BRA `(.L_x_0) ;
        /*0040*/                   BRA `(.L_x_1) ;
        /*0050*/              @!P2 EXIT ;
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);
        /*0070*/                   NOP ;
"""


def test_every_kernel_of_the_map_has_a_row():
    assert {gate.name for gate in GATES} >= {*kernels.LAUNCHERS}
    assert len(set(EVERY)) == len(EVERY)


@pytest.mark.parametrize("gate", GATES, ids=EVERY)
def test_a_row_launches_kernels_and_budgets_both_architectures(gate):
    launches = gate.launches
    assert launches
    held = gate.budgets or next(one.budgets for one in GATES if one.name == gate.name)
    assert held.keys() == {80, 90}, "at one shape at least"
    assert {launch.kernel.fn.__name__ for launch in launches} >= gate.trips.keys()


def test_instructions_are_counted_as_often_as_their_loops_run():
    opcodes, loops = parse_disassembly(LISTING)
    code = Code(0, 0, 0, opcodes, loops)
    assert loops == ((1, 5), (2, 4))
    counts = code.counted((2, 3))
    assert counts == {"LDC": 1, "LDG.E.128": 2, "FADD": 6, "BRA": 9, "EXIT": 1}


def test_what_does_not_compile_is_a_row_and_a_miss(monkeypatch, capsys):
    codes = {80: Code(8, 0, 0, (), ()), 90: Code(8, 0, 0, (), ()), 100: None, "gfx942": None}

    def compiled(_, target):
        if codes[target] is None:
            raise RuntimeError(f"PassManager::run failed\nno such target: {target}")
        return codes[target]

    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(aot, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(machine_code, "compiled", compiled)
    monkeypatch.setattr(gates, "GATES", GATES[:1])
    with pytest.raises(SystemExit) as ended:
        aot.main()
    printed = capsys.readouterr().out.splitlines()
    missed = [line for line in printed if line.startswith("MISS")]
    launches = len(GATES[0].launches)
    assert ended.value.code == 1
    assert len(missed) == 2 * launches
    assert all("does not compile: RuntimeError: no such target" in line for line in missed)
    assert sum(line.endswith("does not compile") for line in printed) == 2 * launches
    assert any(line.startswith(GATES[0].title) for line in printed), "the rest is judged"


@pytest.mark.parametrize(("version", "ended"), [("3.6.0", 0), (f"{aot.BUDGETED}.9", 1)])
def test_what_is_beyond_a_budget_is_a_miss_of_the_triton_it_is_of(
    version, ended, monkeypatch, capsys
):
    slow = Code(8, 2, 0, ("FADD",) * 10**6, ())
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(aot, "ProcessPoolExecutor", ThreadPoolExecutor)
    monkeypatch.setattr(aot, "installed", lambda _: version)
    monkeypatch.setattr(machine_code, "compiled", lambda *_: slow)
    monkeypatch.setattr(gates, "GATES", GATES[:1])
    with pytest.raises(SystemExit) as stopped:
        aot.main()
    assert stopped.value.code == ended
    said = ["spills 2 times", "lane-instructions, budget"] * len(gates.GATES[0].budgets)
    lines = [line for line in capsys.readouterr().out.splitlines() if GATES[0].title in line]
    lines = [line for line in lines if line.startswith("MISS" if ended else "OVER")]
    assert all(part in line for part, line in zip(said, lines, strict=True))


def test_ci_compiles_with_the_triton_of_the_budgets():
    assert f"\ntriton=={aot.BUDGETED}." in (ROOT / "constraints.txt").read_text()
