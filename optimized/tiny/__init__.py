"""A small byte-level language model with grouped queries; README.md is its card."""

from pathlib import Path

HERE = Path(__file__).parent
"""What `transformers` calls a pretrained model: give it to `from_pretrained`."""

__all__ = ["HERE"]
