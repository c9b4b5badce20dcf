"""Options of the timing test: the benchmarks to run, the device, and the number of threads."""

from importlib import import_module

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    parser.addoption("--bench", action="append", metavar="NAME", help="benchmark; repeatable")
    parser.addoption("--bench-device", default="cpu", help="the device of the inputs")
    parser.addoption("--bench-threads", type=int, default=1, help="threads of torch")


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of threads."""
    torch.set_num_threads(config.option.bench_threads)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Time both sides of each case, one right after the other."""
    cases = [
        pytest.param(bench, at, side, id=f"{bench}-{case.name}-{case.shape}-{side}")
        for bench in metafunc.config.option.bench or ()
        for at, case in enumerate(import_module(f"optimized.bench.bench_{bench}").CASES)
        for side in ("slow", "fast")
    ]
    metafunc.parametrize(("bench", "at", "side"), cases)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """Return the device to time on."""
    return torch.device(str(request.config.getoption("--bench-device")))
