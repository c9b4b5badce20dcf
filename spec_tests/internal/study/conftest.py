"""Fixtures: a small model with random weights, and the command on it."""

import pytest


@pytest.fixture(scope="session")
def command_model(tmp_path_factory):
    """Return a folder with a model."""
    command_model = pytest.importorskip("spec_tests.internal.study.command_runner")
    return command_model.save_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def command(command_model, tmp_path):
    """Return the command on that model."""
    from spec_tests.internal.study.command_runner import CommandRunner

    return CommandRunner(command_model, tmp_path)
