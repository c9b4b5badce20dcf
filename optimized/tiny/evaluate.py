"""Evaluation of a model: held-out text, needle retrieval, and repetition of a context.

`python -m optimized.tiny.evaluate FOLDER` prints the figures of the model card.
"""

import sys
from collections.abc import Iterable
from itertools import islice, product
from math import log
from pathlib import Path
from random import Random

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from optimized.tiny.corpus_tokenizer import TokenizedCorpus
from optimized.tiny.tasks import REPEAT, Fact, facts, hidden


def needle(
    corpus: TokenizedCorpus, seed: int, length: int, distractors: int = 0
) -> tuple[list[int], Fact]:
    """Return `length` tokens of held-out text, and a fact that is hidden in it with distractors.

    Seeds of training are strings, so no integer seed repeats a training sample.
    """
    rng = Random(seed)
    fact_list = facts(rng, 1 + distractors, corpus.words)
    pieces = hidden(corpus, rng, fact_list, length, "heldout")
    return [token for text, _ in pieces for token in text], rng.choice(fact_list)


@torch.inference_mode()
def greedy_matches(model: LlamaForCausalLM, prompt: list[int], answer: list[int]) -> Tensor:
    """Return the mask of answer tokens that greedy decoding predicts, given all tokens before.

    Greedy generation returns the exact answer if and only if all are true.
    """
    row = torch.tensor([prompt + answer], device=model.device)
    logits = model(input_ids=row, logits_to_keep=len(answer) + 1, use_cache=False).logits
    return logits[0, :-1].argmax(-1) == row[0, -len(answer) :]


def needle_accuracy(
    model: LlamaForCausalLM,
    corpus: TokenizedCorpus,
    length: int = 1024,
    seeds: Iterable[int] = range(200),
    distractors: int = 0,
    restated: bool = False,
) -> float:
    """Return the share of needles that greedy generation finds; `length` excludes the question."""
    found = []
    for seed in seeds:
        context, fact = needle(corpus, seed, length, distractors)
        prompt = [corpus.begin, *context, *corpus.ids("\n" + fact.question(restated))]
        found.append(bool(greedy_matches(model, prompt, corpus.ids(fact.answer())).all()))
    return sum(found) / len(found)


def repeat_accuracy(
    model: LlamaForCausalLM,
    corpus: TokenizedCorpus,
    length: int = 512,
    seeds: Iterable[int] = range(20),
) -> float:
    """Return the share of a context's tokens that the model predicts when asked to repeat it."""
    right = []
    for seed in seeds:
        context = corpus.passage(Random(seed), length, "heldout")
        prompt = [corpus.begin, *context, *corpus.ids(REPEAT)]
        right.append(greedy_matches(model, prompt, context).double().mean().item())
    return sum(right) / len(right)


@torch.inference_mode()
def bits_per_byte(
    model: LlamaForCausalLM, corpus: TokenizedCorpus, length: int = 1024, most: int | None = None
) -> float:
    """Return the bits per byte of held-out files, in independent windows of `length` tokens."""
    nats, count = 0.0, 0
    for text in islice(corpus.windows("heldout", length), 0, None, 1 if most is None else 37):
        row = torch.tensor([[corpus.begin, *text]], device=model.device)
        logits = model(input_ids=row, use_cache=False).logits[0, :-1]
        nats += cross_entropy(logits.float(), row[0, 1:], reduction="sum").item()
        count += sum(corpus.sizes[token] for token in text)
        if most is not None and (most := most - 1) <= 0:
            break
    return nats / log(2) / count


def main(folder: Path) -> None:
    """Print every figure."""
    model, corpus = LlamaForCausalLM.from_pretrained(folder).eval(), TokenizedCorpus(folder)
    for length, distractors, restated in product((256, 512, 1024, 1900), (0, 3), (False, True)):
        share = needle_accuracy(model, corpus, length, range(200), distractors, restated)
        way = "restated" if restated else "asked"
        print(f"needles, {length} tokens, {distractors} others, {way}: {share:.1%}")
    for length in (256, 512, 950):
        print(f"repeats {length} tokens: {repeat_accuracy(model, corpus, length):.1%}")
    for length in (512, 1024, 2047):
        print(f"bits per byte, windows of {length}: {bits_per_byte(model, corpus, length):.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    main(Path(sys.argv[1]))
