"""KVzip on a model: the model reads the context, then repeats it chunk by chunk."""

from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import optimized
from optimized import Scored
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.prefill import Prefilled, Step, install_watchers
from optimized.models.scorer import PromptLayer, Scorer, Scores, ends, lengths

FIRST = "\n\nRepeat the previous context exactly."
NEXT = "\n\nRepeat the part of the previous context exactly, starting with `{}`."
START = 8
"""Number of tokens of a chunk that the request quotes to say where the chunk starts."""


class Request:
    """A request in words to repeat a chunk of the context."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def __call__(self, index: int, chunk: Tensor) -> list[int]:
        """Return the ids of the request for a chunk, up to the start of the model's answer."""
        text = NEXT.format(self.tokenizer.decode(chunk[:START])) if index else FIRST
        if getattr(self.tokenizer, "chat_template", None):
            said = [{"role": "user", "content": "?"}]
            how = dict(tokenize=False, add_generation_prompt=True)
            text += self.tokenizer.apply_chat_template(said, **how).rpartition("?")[2]
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]


class KVzip(Scorer):
    """Scores by the largest attention a token receives while the model repeats its chunk.

    With the setting `tokenizer`, a request in words precedes the repetition, in the chat template
    if there is one. The setting `prompt` holds the ids of a request, or is a function that returns
    them for the index and the ids of a chunk. Without either there is no request.
    """

    name = "kvzip"
    takes = ("tokenizer", "prompt", "chunk", "sinks", "recent")
    functions = (optimized.kvzip,)
    scope = "model"
    by_layer = False
    of_prompt_alone = "it makes the model repeat its prompt, and would have to repeat each answer"
    colour = "#2f6fd0"

    def __init__(self, model: PreTrainedModel, kv: ModuleType, **settings: Any) -> None:
        super().__init__(model, kv, **settings)
        self.chunk, self.sinks = settings.get("chunk", 2000), settings.get("sinks", 4)
        named = settings.get("tokenizer")
        if "tokenizer" in settings and not callable(named):
            raise TypeError(
                "settings of kvzip must have the tokenizer object of the model as tokenizer, got "
                f"{named!r}"
            )
        if named is not None and "prompt" in settings:
            raise ValueError("settings of kvzip must have tokenizer or prompt, got both")
        self.asking = settings.get("prompt", ()) if named is None else Request(named)

    def finish(self, prompt: Prefilled, keep: int) -> Scores:
        """Return the scores, after the model has repeated the context; the cache is restored."""
        if prompt.cache.looked:
            raise ValueError(
                f"scorer must not be kvzip with {', '.join(prompt.cache.looked)}, got "
                "kvzip, which makes the model repeat its prompt: take 'snapkv', 'h2o' or another"
            )
        self.memory = {}
        longest = int(lengths(prompt).max())
        for index in range(-(-max(0, longest - self.sinks) // self.chunk)):
            self.repeat(prompt, index)
        return super().finish(prompt, keep)

    def repeat(self, prompt: Prefilled, index: int) -> None:
        """Read one chunk again, and store its scores from the queries of the repetition."""
        ids, there = self.repeat_inputs(prompt, index)
        checks.require_ids_in_vocabulary(self.model, ids, "ids of kvzip's request")
        blank = (~there).sum(-1).tolist()
        repeated = there.flip(-1)
        tokens = prompt.input_ids.shape[1]
        whole = torch.ones_like(prompt.input_ids, dtype=torch.bool)
        valid = whole if prompt.valid is None else prompt.valid
        positions = lengths(prompt)[:, None] + there.long().cumsum(-1) - 1

        def on_the_left(rows: Tensor) -> Tensor:
            """Return rows with the padding moved to the left, as the specification expects."""
            moved = [row.roll(count, -2) for row, count in zip(rows, blank, strict=True)]
            return torch.stack(moved) if any(blank) else rows

        def watch(step: Step) -> None:
            keys, echo = step.keys[:, :, :tokens], on_the_left(step.keys[:, :, tokens:])
            self.memory[step.layer] = self.kv.kvzip_chunk(
                on_the_left(step.queries),
                keys,
                echo,
                index,
                self.chunk,
                self.sinks,
                valid.to(keys.device),
                repeated.to(keys.device),
                self.memory.get(step.layer),
            )

        with (
            torch.no_grad(),
            prompt.cache.undone(),
            install_watchers(self.model, prompt.cache, [watch]),
        ):
            self.model(
                input_ids=ids,
                attention_mask=torch.cat([valid, there], 1).long(),
                position_ids=positions,
                past_key_values=prompt.cache,
                use_cache=True,
                logits_to_keep=1,
            )

    def repeat_inputs(self, prompt: Prefilled, index: int) -> tuple[Tensor, Tensor]:
        """Return the repeat input of each row, and a mask of its real tokens.

        It is padded on the right. Left padding would come directly after the context, and fill the
        window of a sliding-window layer.
        """
        rows: list[Tensor] = []
        for row, count in enumerate(lengths(prompt).tolist()):
            start = self.sinks + index * self.chunk
            text = prompt.input_ids[row, prompt.input_ids.shape[1] - count :]
            chunk = text[start : start + self.chunk]
            asking = self.asking
            asking = asking(index, chunk) if callable(asking) else asking
            rows.append(torch.cat([torch.as_tensor(asking).to(chunk), chunk]))
        there = [torch.ones_like(row, dtype=torch.bool) for row in rows]
        return pad_sequence(rows, batch_first=True), pad_sequence(there, batch_first=True)

    def scored(self, read: PromptLayer) -> Scored:
        """Return the scores of one layer's tokens, with both ends protected."""
        scores = self.memory.get(read.layer)
        if scores is None:  # no chunk: all tokens are sinks
            scores = read.keys.new_zeros(read.keys.shape[:-1], dtype=torch.float32)
        return Scored(scores, ends(read, **self.chosen("sinks", "recent")))
