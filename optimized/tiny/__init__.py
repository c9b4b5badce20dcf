"""Two small language models with grouped queries, one of bytes and one of words.

Each folder is what `transformers` calls a pretrained model: give it to `from_pretrained`. Its
README.md is its card.
"""

from pathlib import Path

BYTES = Path(__file__).parent / "bytes"
"""A token is a byte."""

WORDS = Path(__file__).parent / "words"
"""A token is a word, or a piece of one."""

MODELS = {"words": WORDS, "bytes": BYTES}
"""By the names that the command knows."""

BEGIN, END = "<|begin|>", "<|end|>"
"""The marks around a text."""

__all__ = ["BEGIN", "BYTES", "END", "MODELS", "WORDS"]
