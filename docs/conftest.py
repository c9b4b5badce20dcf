"""Run every example of the documentation."""

from importlib.util import find_spec

import torch
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser


def print_alike(namespace: dict) -> None:
    """Reset the print options of tensors, and define whether optional packages are missing."""
    torch.set_printoptions(profile="default")
    for name in ("transformers", "kvpress"):
        namespace[f"lacks_{name}"] = find_spec(name) is None


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()], patterns=["*.md"], setup=print_alike
).pytest()
