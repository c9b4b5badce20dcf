"""`python -m optimized.tiny.train MODEL --checkpoint FILE`: train a shipped model.

Every batch is drawn from the number of the step, so a run that resumes from its
checkpoint sees the same batches as an uninterrupted one.
"""

import argparse
import os
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from optimized.tiny import MODELS
from optimized.tiny.corpus_tokenizer import TokenizedCorpus
from optimized.tiny.evaluate import bits_per_byte, needle_accuracy
from optimized.tiny.tasks import COPYING, FINDING, MIXED, STARTING, Shares, draw_task_row

WARMUP = 50
MUON = 0.02


class Stage(NamedTuple):
    """Training steps at one length, each of `rows` rows, with a mixture of tasks."""

    length: int
    rows: int
    steps: int
    shares: Shares


class Plan(NamedTuple):
    """The training plan of a model."""

    shape: dict[str, Any]
    """The settings of the model that differ between the two."""
    stages: tuple[Stage, ...]
    adam: float
    """The learning rate of AdamW, for all weights except matrices of layers; those use `MUON`."""
    cycles: dict[int, int]
    """The step at which each learning rate cycle ends, and how many last steps decay to zero."""

    @property
    def steps(self) -> int:
        """The number of steps of all stages."""
        return sum(stage.steps for stage in self.stages)

    def stage_of(self, step: int) -> Stage:
        """Return the stage that a step belongs to."""
        for stage in self.stages:
            if step < stage.steps:
                return stage
            step -= stage.steps
        return self.stages[-1]

    def rate(self, step: int) -> float:
        """Return the factor of the learning rates: warmup, constant and decay in every cycle."""
        start = max((end for end in self.cycles if end <= step), default=0)
        end = min(end for end in self.cycles if end > step)
        return min(1.0, (step + 1 - start) / WARMUP, (end - step) / self.cycles[end])


PLANS = {
    "bytes": Plan(
        dict(vocab_size=258, intermediate_size=256, tie_word_embeddings=False),
        (
            Stage(192, 8, 2500, COPYING),
            Stage(256, 8, 400, MIXED),
            Stage(512, 6, 400, MIXED),
            Stage(1024, 4, 400, MIXED),
            Stage(512, 8, 800, FINDING),
            Stage(1280, 3, 1400, FINDING),
        ),
        0.004,
        {3700: 200, 5900: 500},
    ),
    "words": Plan(
        dict(vocab_size=2048, intermediate_size=512, tie_word_embeddings=True),
        (
            Stage(96, 64, 400, STARTING),
            Stage(192, 32, 400, COPYING),
            Stage(320, 18, 400, MIXED),
            Stage(640, 9, 600, FINDING),
            Stage(1280, 5, 900, FINDING),
        ),
        0.003,
        {2700: 550},
    ),
}


def config(plan: Plan, corpus: TokenizedCorpus) -> LlamaConfig:
    """Return the configuration of a model."""
    return LlamaConfig(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        bos_token_id=corpus.begin,
        eos_token_id=corpus.end,
        pad_token_id=corpus.end,
        **plan.shape,
    )


def filled(corpus: TokenizedCorpus, rng: Random, stage: Stage) -> tuple[list[int], list[float]]:
    """Return the `length + 1` tokens of a row, filled with concatenated pieces, and weights."""
    tokens, weights = [corpus.begin], [0.0]
    while len(tokens) <= stage.length:
        pieces = draw_task_row(corpus, rng, stage.length, stage.shares)
        for text, weight in [*pieces, ([corpus.end], 1.0)]:
            tokens += text
            weights += [weight] * len(text)
    return tokens[: stage.length + 1], weights[: stage.length + 1]


def batch(corpus: TokenizedCorpus, plan: Plan, step: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of a step and their weights."""
    stage = plan.stage_of(step)
    rngs = (Random(f"0 {step} {row}") for row in range(stage.rows))
    tokens, weights = zip(*(filled(corpus, rng, stage) for rng in rngs), strict=True)
    return torch.tensor(tokens), torch.tensor(weights)


def optimizers(model: LlamaForCausalLM, plan: Plan) -> dict[str, torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers, and AdamW for the other weights.

    Muon orthogonalises in bfloat16, which is slow on a CPU that emulates it.
    """
    matrices = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    rest = [x for x in model.parameters() if not any(x is matrix for matrix in matrices)]
    return {
        "muon": torch.optim.Muon(matrices, lr=MUON, weight_decay=0.02),
        "adam": torch.optim.AdamW(rest, lr=plan.adam, betas=(0.9, 0.95), weight_decay=0.0),
    }


def main() -> None:
    """Train to the last step, then write the model."""
    parser = argparse.ArgumentParser(prog="python -m optimized.tiny.train")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the file to resume from")
    parser.add_argument("--bf16", action="store_true", help="slower on a CPU that emulates it")
    options = parser.parse_args()
    torch.manual_seed(0)
    device: Any = "cuda" if torch.cuda.is_available() else "cpu"
    folder, plan = MODELS[options.model], PLANS[options.model]
    corpus = TokenizedCorpus(folder)
    model = LlamaForCausalLM(config(plan, corpus)).to(device)
    parts: dict[str, Any] = {"model": model, **optimizers(model, plan)}
    start, losses = 0, []
    if options.checkpoint.exists():
        state: dict[str, Any] = torch.load(options.checkpoint, map_location=device)
        start = state.pop("step")
        for name, part in parts.items():
            part.load_state_dict(state[name])
    for step in range(start, plan.steps):
        tokens, weights = (part.to(device) for part in batch(corpus, plan, step))
        with torch.autocast(tokens.device.type, torch.bfloat16, enabled=options.bf16):
            logits = model(input_ids=tokens[:, :-1], use_cache=False).logits
        flat = logits.float().flatten(0, 1), tokens[:, 1:].flatten()
        nats = cross_entropy(*flat, reduction="none")
        scale = weights[:, 1:].flatten()
        loss = (nats * scale).sum() / scale.sum()
        loss.backward()
        for name, rate in (("muon", MUON), ("adam", plan.adam)):
            for group in parts[name].param_groups:
                group["lr"] = rate * plan.rate(step)
            parts[name].step()
            parts[name].zero_grad()
        losses.append((loss.item(), nats[scale == scale.max()].mean().item()))
        done = step + 1
        if done % 20 == 0:
            mean, answers = torch.tensor(losses[-20:]).mean(0).tolist()
            print(f"step {done}: loss {mean:.3f}, answers {answers:.3f}", flush=True)
        if done % 200 == 0:
            length = plan.stage_of(step).length
            share = needle_accuracy(model, corpus, min(length, 1900) - 60, range(20))
            bits = bits_per_byte(model, corpus, length, most=20)
            print(f"        {share:.0%} of needles, {bits:.3f} bits a byte", flush=True)
        if done % 100 == 0 or done == plan.steps:
            beside = options.checkpoint.with_suffix(".part")
            torch.save({"step": done} | {x: part.state_dict() for x, part in parts.items()}, beside)
            os.replace(beside, options.checkpoint)
    model.half().save_pretrained(folder)
    model.config.dtype = torch.float32  # of computation; the file has float16
    model.config.save_pretrained(folder)


if __name__ == "__main__":
    main()
