"""A small language model with grouped-query attention.

Its folder is a pretrained model of `transformers`, to be loaded by `from_pretrained`. Its
README.md is the model card.
"""

from pathlib import Path

WORDS = Path(__file__).parent / "words"
"""The model whose tokens are words or pieces of them."""

BEGIN, END = "<|begin|>", "<|end|>"
"""The special tokens around a text."""

__all__ = ["BEGIN", "END", "WORDS"]
