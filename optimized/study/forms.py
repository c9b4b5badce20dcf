"""The form in which a model is asked: a chat, plain text, or that of our small models."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from optimized.study.tasks import FACT, FOUND
from optimized.tiny import BEGIN
from optimized.tiny.tasks import CONTINUE, REPEAT

MARK = "\0text\0"
TASK = "Facts are hidden in the following text. Memorize them: there will be questions on them.\n\n"


class Form(NamedTuple):
    """What is around a text, and around a question about it."""

    name: str
    head: str
    """What comes before the text; it begins with the special tokens of a chat."""
    before: str
    """What comes between the text and a question."""
    after: str
    """What comes between a question and its answer."""
    kinds: tuple[str, ...]
    """The kinds of tasks that are asked by default."""

    def asked(self, question: str, beginning: str = "") -> str:
        """Return all that a model reads after the text, up to where its own answer begins."""
        return f"{self.before}{question}{self.after}{beginning}"


def form_of(tokenizer: PreTrainedTokenizerBase) -> Form:
    """Return the form of the model of a tokenizer: a chat where it has a template."""
    if BEGIN in tokenizer.get_vocab():
        return Form("ours", "", "\n", "\n", (FACT,))
    if tokenizer.chat_template is not None:
        said = [{"role": "user", "content": MARK}]
        both = tokenizer.apply_chat_template(said, add_generation_prompt=True, tokenize=False)
        head, *tail = str(both).split(MARK)
        if len(tail) == 1:
            return Form("chat", head + TASK, "\n\n", tail[0], FOUND)
    marked = tokenizer("a").input_ids[:1] == [tokenizer.bos_token_id]
    head = str(tokenizer.bos_token) if marked else ""
    return Form("plain", head + TASK, "\n\nQuestion: ", "\nAnswer: ", FOUND)


def request(tokenizer: PreTrainedTokenizerBase) -> Callable[[int, Tensor], list[int]]:
    """Return a function that returns the ids of KVzip's request to repeat a chunk."""
    form = form_of(tokenizer)
    end = form.after if form.name == "chat" else "\n\n"

    def asking(index: int, chunk: Tensor) -> list[int]:
        before, after = CONTINUE
        first = tokenizer.decode(chunk[:8].tolist(), skip_special_tokens=True)
        text = f"{before}{first}{after}" if index else REPEAT
        return tokenizer(text.rstrip() + end, add_special_tokens=False).input_ids

    return asking
