"""`python -m optimized.tiny.build_tokenizers`: build the tokenizers of the shipped models."""

import re
from collections import Counter

from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, processors, trainers
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast
from transformers.convert_slow_tokenizer import bytes_to_unicode

from optimized.tiny import BEGIN, BYTES, END, WORDS
from optimized.tiny.corpus import files

MARKS = [BEGIN, END]

PIECES = 2048
CUTS = r"(?<=[A-Za-z]) [A-Za-z]+|[A-Za-z]+|[0-9]|[^A-Za-z0-9\n]*\n|[^A-Za-z0-9\n]+"
"""The pretokens, which no token crosses: a word, with the space between it and the word before; a
digit; other characters, up to the end of their line."""

WORD = "(?<![A-Za-z])[a-z]{3,}(?![A-Za-z])"
OFTEN = 100
"""The least number of occurrences in the corpus of a word that facts are made of."""

LETTERS = [letter for _, letter in sorted(bytes_to_unicode().items())]
"""The character that stands for each byte in a byte-level vocabulary."""


def of_bytes() -> Tokenizer:
    """Return a tokenizer whose token ids are the values of bytes."""
    bare = Tokenizer(BPE({letter: byte for byte, letter in enumerate(LETTERS)}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.add_special_tokens(MARKS)
    return bare


def of_words() -> Tokenizer:
    """Return a tokenizer trained on the corpus."""
    bare = Tokenizer(BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    cuts = pre_tokenizers.Split(Regex(CUTS), "isolated")
    bare.pre_tokenizer = pre_tokenizers.Sequence([cuts, level])
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        special_tokens=MARKS,
        initial_alphabet=LETTERS,
        show_progress=False,
    )
    bare.train_from_iterator(files("train").values(), trainer)
    return bare


def finished(bare: Tokenizer) -> PreTrainedTokenizerFast:
    """Return a lossless tokenizer that adds the mark of the beginning to a text."""
    bare.decoder = decoders.ByteLevel()
    marks = [(mark, bare.token_to_id(mark)) for mark in MARKS]
    bare.post_processor = processors.TemplateProcessing(
        single=f"{BEGIN} $A", special_tokens=marks[:1]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bare,
        bos_token=BEGIN,
        eos_token=END,
        pad_token=END,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )


def common_words(tokenizer: PreTrainedTokenizerFast) -> list[str]:
    """Return the frequent words of the corpus that are one token each, sorted."""
    found = Counter(word for text in files("train").values() for word in re.findall(WORD, text))
    often = sorted(word for word, count in found.items() if count >= OFTEN)
    return [word for word in often if len(tokenizer.tokenize(word)) == 1]


if __name__ == "__main__":
    finished(of_bytes()).save_pretrained(BYTES)
    made = finished(of_words())
    made.save_pretrained(WORDS)
    (WORDS / "words.txt").write_text("\n".join(common_words(made)) + "\n")
