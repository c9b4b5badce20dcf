"""`python -m optimized.tiny.train --checkpoint FILE`: train the shipped model.

Every batch is drawn from the seed and the number of the step, so that a run which was stopped goes
on from its checkpoint as if it had not been.
"""

import argparse
import os
import time
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from optimized.tiny import HERE, tokenizer
from optimized.tiny.evaluate import bits_per_byte, needle_accuracy
from optimized.tiny.muon import Muon
from optimized.tiny.tasks import COPYING, FINDING, MIXED, Shares, row

WARMUP = 50
RATES = {"muon": 0.02, "adam": 0.004}


class Stage(NamedTuple):
    """Some steps at one length, `rows` rows each, of a mixture of kinds."""

    length: int
    rows: int
    steps: int
    shares: Shares


STAGES = (
    Stage(192, 8, 2500, COPYING),
    Stage(256, 8, 400, MIXED),
    Stage(512, 6, 400, MIXED),
    Stage(1024, 4, 400, MIXED),
    Stage(512, 8, 800, FINDING),
    Stage(1280, 3, 1400, FINDING),
)
STEPS = sum(stage.steps for stage in STAGES)

CYCLES = {3700: 200, STEPS: 500}
"""Where a cycle of the rates ends, and over how many of its last steps they fall to nothing."""


def config() -> LlamaConfig:
    """Return the shape of the model."""
    return LlamaConfig(
        vocab_size=tokenizer.SIZE,
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        bos_token_id=tokenizer.BEGIN,
        eos_token_id=tokenizer.END,
        pad_token_id=tokenizer.END,
        tie_word_embeddings=False,
    )


def stage_of(step: int) -> Stage:
    """Return the stage that a step belongs to."""
    for stage in STAGES:
        if step < stage.steps:
            return stage
        step -= stage.steps
    return STAGES[-1]


def rate(step: int) -> float:
    """Return the share of the full rates: up, level and down, in every cycle."""
    start = max((end for end in CYCLES if end <= step), default=0)
    end = min(end for end in CYCLES if end > step)
    return min(1.0, (step + 1 - start) / WARMUP, (end - step) / CYCLES[end])


def filled(rng: Random, length: int, shares: Shares) -> tuple[list[int], list[float]]:
    """Return `length + 1` tokens, rows one after the other, and the weight of each."""
    found, weights = [tokenizer.BEGIN], [0.0]
    while len(found) <= length:
        for text, weight in row(rng, length, shares):
            found += text
            weights += [weight] * len(text)
        found.append(tokenizer.END)
        weights.append(1.0)
    return found[: length + 1], weights[: length + 1]


def batch(seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of a step and their weights."""
    stage = stage_of(step)
    rngs = (Random(f"{seed} {step} {place}") for place in range(stage.rows))
    found, weights = zip(*(filled(rng, stage.length, stage.shares) for rng in rngs), strict=True)
    return torch.tensor(found), torch.tensor(weights)


def optimizers(model: LlamaForCausalLM) -> dict[str, torch.optim.Optimizer]:
    """Return one optimiser for the matrices inside, and one for the rest."""
    inside = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    taken = {id(weight) for weight in inside}
    rest = [weight for weight in model.parameters() if id(weight) not in taken]
    return {
        "muon": Muon(inside, lr=RATES["muon"], decay=0.02),
        "adam": torch.optim.AdamW(rest, lr=RATES["adam"], betas=(0.9, 0.95), weight_decay=0.0),
    }


def save(state: dict[str, Any], file: Path) -> None:
    """Write a checkpoint whole or not at all."""
    beside = file.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, file)


def export(model: LlamaForCausalLM, folder: Path) -> None:
    """Write what `from_pretrained` reads: weights of 16 bits, to be computed with in 32."""
    halved = LlamaForCausalLM(model.config)
    halved.load_state_dict(model.state_dict())
    halved.half().save_pretrained(folder)
    shape = LlamaConfig.from_pretrained(folder)
    shape.dtype = torch.float32
    shape.save_pretrained(folder)
    tokenizer.save(folder)


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m optimized.tiny.train")
    parser.add_argument("--checkpoint", type=Path, required=True, help="begun, or gone on from")
    parser.add_argument("--out", type=Path, default=HERE, help="where the model goes at the end")
    parser.add_argument("--seed", type=int, default=0)
    on_gpu = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=on_gpu)
    parser.add_argument("--bf16", action="store_true", help="slower on a CPU that emulates it")
    parser.add_argument("--minutes", type=float, default=3.0, help="between checkpoints")
    return parser.parse_args()


def main() -> None:
    """Train to the last step, then write the model."""
    given = arguments()
    torch.manual_seed(given.seed)
    model = LlamaForCausalLM(config()).to(given.device)
    chosen = optimizers(model)
    state: dict[str, Any] = {"step": 0, "seconds": 0.0, "losses": [], "figures": []}
    if given.checkpoint.exists():
        state = torch.load(given.checkpoint, map_location=given.device)
        model.load_state_dict(state["model"])
        for name, optimizer in chosen.items():
            optimizer.load_state_dict(state[name])
    start = saved = time.monotonic() - state["seconds"]
    for step in range(state["step"], STEPS):
        found, weights = (part.to(given.device) for part in batch(given.seed, step))
        with torch.autocast(found.device.type, torch.bfloat16, enabled=given.bf16):
            logits = model(input_ids=found[:, :-1], use_cache=False).logits
        each = cross_entropy(logits.float().flatten(0, 1), found[:, 1:].flatten(), reduction="none")
        scale = weights[:, 1:].flatten()
        loss = (each * scale).sum() / scale.sum()
        loss.backward()
        for name, optimizer in chosen.items():
            for group in optimizer.param_groups:
                group["lr"] = RATES[name] * rate(step)
            optimizer.step()
            optimizer.zero_grad()
        hard = scale == scale.max()
        state["losses"].append((loss.item(), each[hard].mean().item()))
        state["step"] = step + 1
        if state["step"] % 20 == 0:
            recent = torch.tensor(state["losses"][-20:]).mean(0).tolist()
            words = f"loss {recent[0]:.3f}, answers {recent[1]:.3f}"
            print(f"{time.monotonic() - start:6.0f} s, step {step + 1}: {words}", flush=True)
        if state["step"] % 200 == 0:
            length = stage_of(step).length
            share = needle_accuracy(model, min(length, 1900) - 60, range(20))
            bits = bits_per_byte(model, length, most=20)
            state["figures"].append((step + 1, length, share, bits))
            print(f"        {share:.0%} of needles, {bits:.3f} bits a byte", flush=True)
        if time.monotonic() - saved > given.minutes * 60 or state["step"] == STEPS:
            saved = time.monotonic()
            state["seconds"] = saved - start
            kept = {name: optimizer.state_dict() for name, optimizer in chosen.items()}
            save(state | kept | {"model": model.state_dict()}, given.checkpoint)
    export(model, given.out)


if __name__ == "__main__":
    main()
