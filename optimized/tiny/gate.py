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
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--length", type=int, default=960)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--sample", type=int, default=2048, help="tokens of a step")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    model = attach(LlamaForCausalLM.from_pretrained(given.model).eval())
    on, prompts = TokenizedCorpus(given.model), []
    for index in range(given.rows):
        rng = Random(f"gate {given.seed} {index}")
        pieces = hidden(on, rng, facts(rng, rng.randint(0, 6), on.words), given.length)
        tokens = [on.begin, *(token for text, _ in pieces for token in text)]
        prompts.append(torch.tensor([tokens]))
    asking = torch.tensor(on.ids(REPEAT))
    # a quarter of the recipe's learning rate, since the loss is a sum over heads, here four
    how = dict(steps=given.steps, sample=given.sample, rate=0.05, spread=1.0)
    gates = learn_gates(model, prompts, given.seed, prompt=asking, **how)
    save_gates(gates, given.model)


if __name__ == "__main__":
    main()
