"""Run every example of the documentation."""

import torch
from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser


def print_alike(_namespace: dict) -> None:
    """Print tensors the same way whatever ran before."""
    torch.set_printoptions(profile="default")


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser()], patterns=["*.md"], setup=print_alike
).pytest()
