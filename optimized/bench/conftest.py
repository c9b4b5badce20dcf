"""Where the benchmarks' inputs live."""

import pytest
import torch


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the device to time on."""
    parser.addoption("--bench-device", default="cpu", help="where the inputs live")


@pytest.fixture(scope="session")
def device(request: pytest.FixtureRequest) -> torch.device:
    """Return the device to time on."""
    return torch.device(str(request.config.getoption("--bench-device")))
