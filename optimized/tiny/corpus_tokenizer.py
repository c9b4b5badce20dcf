"""The tokenizer of the shipped model, and the words that it has whole."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from optimized.tiny import BEGIN, END, WORDS

LISTED = WORDS / "words.txt"
"""The list of words that are one token of the shipped model."""

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
