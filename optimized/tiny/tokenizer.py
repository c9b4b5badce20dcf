"""One token a byte: the number of a token is the byte; two tokens are none."""

from pathlib import Path

from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

BEGIN, END = 256, 257
SIZE = 258


def letters() -> list[str]:
    """Return the character that stands for each byte in a byte-level vocabulary."""
    seen = [byte for byte in range(256) if chr(byte).isprintable() and chr(byte) != " "]
    unseen = [byte for byte in range(256) if byte not in seen]
    codes = {byte: byte for byte in seen}
    codes |= {byte: 256 + place for place, byte in enumerate(unseen)}
    return [chr(codes[byte]) for byte in range(256)]


def tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer: the begin of a text is marked, and any text comes back from it."""
    bare = Tokenizer(BPE({letter: byte for byte, letter in enumerate(letters())}, []))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    bare.decoder = decoders.ByteLevel()
    begin, end = "<|begin|>", "<|end|>"
    bare.add_special_tokens([begin, end])
    marks = [(begin, BEGIN)]
    bare.post_processor = processors.TemplateProcessing(single=f"{begin} $A", special_tokens=marks)
    return PreTrainedTokenizerFast(
        tokenizer_object=bare,
        bos_token=begin,
        eos_token=end,
        pad_token=end,
        model_max_length=2048,
        clean_up_tokenization_spaces=False,
        split_special_tokens=True,
    )


def save(folder: Path) -> None:
    """Write the tokenizer's files."""
    tokenizer().save_pretrained(folder)
