"""Two small language models with grouped-query attention, one over bytes and one over words.

Each folder is a pretrained model of `transformers`, to be loaded by `from_pretrained`. Its
README.md is the model card.
"""

from pathlib import Path

BYTES = Path(__file__).parent / "bytes"
"""The model whose tokens are bytes."""

WORDS = Path(__file__).parent / "words"
"""The model whose tokens are words or pieces of them."""

MODELS = {"words": WORDS, "bytes": BYTES}
"""The models by their names on the command line."""

BEGIN, END = "<|begin|>", "<|end|>"
"""The special tokens around a text."""

__all__ = ["BEGIN", "BYTES", "END", "MODELS", "WORDS"]
