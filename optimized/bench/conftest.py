"""The device and the number of threads of the benchmarks."""

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for device and threads."""
    parser.addoption("--bench-device", default="cpu", help="where the inputs live")
    parser.addoption("--bench-threads", type=int, default=0, help="0: as many as torch would take")


def pytest_configure(config: pytest.Config) -> None:
    """Set the number of threads."""
    if threads := config.getoption("--bench-threads"):
        torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """Return the device to time on."""
    return torch.device(str(request.config.getoption("--bench-device")))
