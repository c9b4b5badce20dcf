"""The command on a small model of random weights."""

import pytest


@pytest.fixture(scope="session")
def command_model(tmp_path_factory):
    """A folder with a model."""
    command_model = pytest.importorskip("spec_tests.study.command_model")
    return command_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture
def command(command_model, tmp_path):
    """The command, to be run on it."""
    from spec_tests.study.command_model import Command

    return Command(command_model, tmp_path)
