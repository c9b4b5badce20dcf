"""`python -m optimized.tiny.gate FOLDER`: train FastKVzip's gates for a shipped model."""

import argparse
from pathlib import Path
from random import Random

import torch

from optimized.models.attach import attach
from optimized.models.fastkvzip_gates import learn_gates, save_gates
from optimized.tiny.corpus_tokenizer import TokenizedCorpus
from optimized.tiny.tasks import REPEAT, facts, hidden


def main() -> None:
    """Train the gates on KVzip's scores of texts of the training split, and write them."""
    from transformers import LlamaForCausalLM

    parser = argparse.ArgumentParser(prog="python -m optimized.tiny.gate")
    parser.add_argument("model", type=Path, help="folder of the model, and of its gates")
    given = parser.parse_args()
    model = attach(LlamaForCausalLM.from_pretrained(given.model).eval())
    corpus, prompts = TokenizedCorpus(given.model), []
    for index in range(30):
        rng = Random(f"gate 0 {index}")
        pieces = hidden(corpus, rng, facts(rng, rng.randint(0, 6), corpus.words), length=960)
        tokens = [corpus.begin, *(token for text, _ in pieces for token in text)]
        prompts.append(torch.tensor([tokens]))
    asking = torch.tensor(corpus.ids(REPEAT))
    # a quarter of the recipe's learning rate, since the loss is a sum over heads, here four
    how = dict(steps=1000, sample=2048, rate=0.05, spread=1.0)
    gates = learn_gates(model, prompts, 0, prompt=asking, **how)
    save_gates(gates, given.model)


if __name__ == "__main__":
    main()
