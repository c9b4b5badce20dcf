"""Run every example of the documentation."""

from importlib.util import find_spec

import pytest
import torch
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


def print_alike(namespace: dict) -> None:
    """Reset the print options of tensors, and define whether optional packages are missing."""
    torch.set_printoptions(profile="default")
    for name in ("transformers", "kvpress"):
        namespace[f"lacks_{name}"] = find_spec(name) is None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of docs/browser_checks.py."""
    parser.addoption("--site", default="site", help="folder of the built site")
    parser.addoption("--every-page", action="store_true", help="open every page of the site")


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["*.md"],
    excludes=["test_*.md"],  # laws, by docs/generate.py: source, no examples
    setup=print_alike,
).pytest()
