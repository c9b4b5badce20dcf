"""How well a model predicts files it has not seen, finds facts, and repeats what it has read.

`python -m optimized.tiny.evaluate [FOLDER]` prints the figures of the model card.
"""

import sys
from collections.abc import Iterable
from itertools import islice
from math import log
from pathlib import Path
from random import Random
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from optimized.tiny import HERE
from optimized.tiny.corpus import passage, windows
from optimized.tiny.tasks import REPEAT, Fact, facts, hidden
from optimized.tiny.tokenizer import BEGIN


class Needle(NamedTuple):
    """A context in held-out text, and a fact in it."""

    context: bytes
    fact: Fact
    depth: float


def needle(seed: int, length: int, distractors: int = 0) -> Needle:
    """Hide a fact, and others beside it, in `length` bytes of held-out text.

    The seeds of training are words, so none of these numbers has been trained on.
    """
    rng = Random(seed)
    known = facts(rng, 1 + distractors)
    context = b"".join(text for text, _ in hidden(rng, known, length, "heldout"))
    fact = rng.choice(known)
    return Needle(context, fact, context.index(fact.stated()) / length)


def tokens(*parts: bytes, device: torch.device | str = "cpu") -> Tensor:
    """Return the tokens of a text: a mark, then its bytes."""
    return torch.tensor([[BEGIN, *b"".join(parts)]], device=device)


@torch.inference_mode()
def says(model: LlamaForCausalLM, prompt: bytes, answer: bytes) -> Tensor:
    """Return which bytes of an answer are the likeliest, given the prompt and those before.

    Greedy generation gives the whole answer exactly if all of them are.
    """
    row = tokens(prompt, answer, device=model.device)
    logits = model(input_ids=row, logits_to_keep=len(answer) + 1, use_cache=False).logits
    return logits[0, :-1].argmax(-1) == row[0, -len(answer) :]


def needle_accuracy(
    model: LlamaForCausalLM,
    length: int = 1024,
    seeds: Iterable[int] = range(200),
    distractors: int = 0,
    restated: bool = False,
) -> float:
    """Return the share of needles that greedy generation finds; the question comes on top."""
    found = []
    for seed in seeds:
        context, fact, _ = needle(seed, length, distractors)
        prompt = context + b"\n" + fact.question(restated)
        found.append(bool(says(model, prompt, fact.answer()).all()))
    return sum(found) / len(found)


def repeat_accuracy(
    model: LlamaForCausalLM, length: int = 512, seeds: Iterable[int] = range(20)
) -> float:
    """Return the share of the bytes of a context that the model repeats when it is asked to."""
    right = []
    for seed in seeds:
        context = passage(Random(seed), length, "heldout")
        right.append(says(model, context + REPEAT, context).double().mean().item())
    return sum(right) / len(right)


@torch.inference_mode()
def bits_per_byte(model: LlamaForCausalLM, length: int = 1024, most: int | None = None) -> float:
    """Return the bits a byte of held-out files costs, in windows of `length` that start afresh."""
    nats, count = 0.0, 0
    for text in islice(windows("heldout", length), 0, None, 1 if most is None else 37):
        row = tokens(text, device=model.device)
        logits = model(input_ids=row, use_cache=False).logits[0, :-1]
        nats += cross_entropy(logits.float(), row[0, 1:], reduction="sum").item()
        count += len(text)
        if most is not None and (most := most - 1) <= 0:
            break
    return nats / log(2) / count


def main(folder: Path) -> None:
    """Print every figure."""
    model = LlamaForCausalLM.from_pretrained(folder).eval()
    for length in (256, 512, 1024, 1900):
        for distractors in (0, 3):
            for restated in (False, True):
                share = needle_accuracy(model, length, range(200), distractors, restated)
                way = "restated" if restated else "asked"
                print(f"needles, {length} bytes, {distractors} others, {way}: {share:.1%}")
    for length in (256, 512, 950):
        print(f"repeats {length} bytes: {repeat_accuracy(model, length):.1%}")
    for length in (512, 1024, 2047):
        print(f"bits per byte, windows of {length}: {bits_per_byte(model, length):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]) if sys.argv[1:] else HERE)
