"""The tokenizer of a model, and the tokenized corpus."""

from array import array
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from random import Random

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from optimized.tiny import BEGIN, END, WORDS
from optimized.tiny.corpus import Split, files, joined

LISTED = WORDS / "words.txt"
"""The list of words that are one token of the model of words."""

FEW = 100
"""The least number of words to make facts of."""


def single_token_words(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """Return the listed words that are one token each, or none if there are fewer than `FEW`."""
    listed = LISTED.read_text().split()
    cut = tokenizer(listed, add_special_tokens=False).input_ids
    unknown = tokenizer.unk_token_id
    whole = [
        word
        for word, tokens in zip(listed, cut, strict=True)
        if len(tokens) == 1 and tokens[0] != unknown
    ]
    return whole if len(whole) >= FEW else []


class TokenizedCorpus:
    """The tokenizer of a folder, and the words that are one token of it."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder)
        pieces = self.tokenizer.get_vocab()
        self.begin, self.end = pieces[BEGIN], pieces[END]
        self.words = single_token_words(self.tokenizer)

    def ids(self, text: str) -> list[int]:
        """Return the tokens of a text, without special tokens."""
        return self.tokenizer(text, add_special_tokens=False, verbose=False).input_ids

    @cached_property
    def sizes(self) -> list[int]:
        """The number of bytes of each token: its characters in a byte-level vocabulary."""
        pieces = self.tokenizer.convert_ids_to_tokens(list(range(len(self.tokenizer))))
        return [len(piece) for piece in pieces]

    @cached_property
    def breaks(self) -> set[int]:
        """The tokens that end a line."""
        (newline,) = self.tokenizer.convert_ids_to_tokens(self.ids("\n"))
        pieces = self.tokenizer.get_vocab().items()
        return {token for piece, token in pieces if piece.endswith(newline)}

    @cache  # noqa: B019, there are two of these objects in a process
    def split(self, split: Split) -> array:
        """Return the tokens of a split."""
        found = array("H")
        lines = joined(split).splitlines(keepends=True)
        for line in self.tokenizer(lines, add_special_tokens=False, verbose=False).input_ids:
            found.extend(line)
        return found

    def passage(self, rng: Random, length: int, split: Split = "train") -> list[int]:
        """Return `length` tokens of a split, from the start of a random line."""
        text = self.split(split)
        start = rng.randrange(len(text) - length - 10_000)
        while text[start] not in self.breaks:
            start += 1
        return text[start + 1 : start + 1 + length].tolist()

    def windows(self, split: Split, length: int) -> Iterator[list[int]]:
        """Yield every file of a split in windows of `length` tokens, the last one shorter."""
        for text in files(split).values():
            tokens = self.ids(text)
            yield from (tokens[start : start + length] for start in range(0, len(tokens), length))
