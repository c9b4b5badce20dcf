"""`python -m optimized.tiny.train MODEL --checkpoint FILE`: train a shipped model.

Every batch is drawn from the number of the step, so a run that resumes from its
checkpoint sees the same batches as an uninterrupted one.
"""

import argparse
import os
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import LlamaConfig, LlamaForCausalLM

from optimized.tiny import MODELS
from optimized.tiny.configs import MUON, PLANS, Plan, Stage
from optimized.tiny.corpus_tokenizer import TokenizedCorpus
from optimized.tiny.evaluate import bits_per_byte, needle_accuracy
from optimized.tiny.tasks import draw_task_row


def config(plan: Plan, on: TokenizedCorpus) -> LlamaConfig:
    """Return the configuration of a model."""
    return LlamaConfig(
        hidden_size=256,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=32,
        max_position_embeddings=2048,
        bos_token_id=on.begin,
        eos_token_id=on.end,
        pad_token_id=on.end,
        **plan.shape,
    )


def filled(on: TokenizedCorpus, rng: Random, stage: Stage) -> tuple[list[int], list[float]]:
    """Return the `length + 1` tokens of a row, filled with concatenated pieces, and weights."""
    found, weights = [on.begin], [0.0]
    while len(found) <= stage.length:
        for text, weight in [*draw_task_row(on, rng, stage.length, stage.shares), ([on.end], 1.0)]:
            found += text
            weights += [weight] * len(text)
    return found[: stage.length + 1], weights[: stage.length + 1]


def batch(on: TokenizedCorpus, plan: Plan, step: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of a step and their weights."""
    stage = plan.stage_of(step)
    rngs = (Random(f"0 {step} {place}") for place in range(stage.rows))
    found, weights = zip(*(filled(on, rng, stage) for rng in rngs), strict=True)
    return torch.tensor(found), torch.tensor(weights)


def optimizers(model: LlamaForCausalLM, plan: Plan) -> dict[str, torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers, and AdamW for the other weights.

    Muon orthogonalises in bfloat16, which is slow on a CPU that emulates it.
    """
    inside = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    taken = {id(weight) for weight in inside}
    rest = [weight for weight in model.parameters() if id(weight) not in taken]
    return {
        "muon": torch.optim.Muon(inside, lr=MUON, weight_decay=0.02),
        "adam": torch.optim.AdamW(rest, lr=plan.adam, betas=(0.9, 0.95), weight_decay=0.0),
    }


def export(model: LlamaForCausalLM, folder: Path) -> None:
    """Write a pretrained model, with weights in float16 and float32 as the dtype of computation."""
    model.half().save_pretrained(folder)
    shape = LlamaConfig.from_pretrained(folder)
    shape.dtype = torch.float32
    shape.save_pretrained(folder)


def main() -> None:
    """Train to the last step, then write the model."""
    parser = argparse.ArgumentParser(prog="python -m optimized.tiny.train")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the file to resume from")
    parser.add_argument("--bf16", action="store_true", help="slower on a CPU that emulates it")
    given = parser.parse_args()
    torch.manual_seed(0)
    device: Any = "cuda" if torch.cuda.is_available() else "cpu"
    folder, plan = MODELS[given.model], PLANS[given.model]
    on = TokenizedCorpus(folder)
    model = LlamaForCausalLM(config(plan, on)).to(device)
    chosen = optimizers(model, plan)
    rates = {"muon": MUON, "adam": plan.adam}
    start, losses = 0, []
    if given.checkpoint.exists():
        state: dict[str, Any] = torch.load(given.checkpoint, map_location=device)
        start = state["step"]
        model.load_state_dict(state["model"])
        for name, optimizer in chosen.items():
            optimizer.load_state_dict(state[name])
    for step in range(start, plan.steps):
        found, weights = (part.to(device) for part in batch(on, plan, step))
        with torch.autocast(found.device.type, torch.bfloat16, enabled=given.bf16):
            logits = model(input_ids=found[:, :-1], use_cache=False).logits
        each = cross_entropy(logits.float().flatten(0, 1), found[:, 1:].flatten(), reduction="none")
        scale = weights[:, 1:].flatten()
        loss = (each * scale).sum() / scale.sum()
        loss.backward()
        for name, optimizer in chosen.items():
            for group in optimizer.param_groups:
                group["lr"] = rates[name] * plan.rate(step)
            optimizer.step()
            optimizer.zero_grad()
        losses.append((loss.item(), each[scale == scale.max()].mean().item()))
        done = step + 1
        if done % 20 == 0:
            mean, answers = torch.tensor(losses[-20:]).mean(0).tolist()
            print(f"step {done}: loss {mean:.3f}, answers {answers:.3f}", flush=True)
        if done % 200 == 0:
            length = plan.stage_of(step).length
            share = needle_accuracy(model, on, min(length, 1900) - 60, range(20))
            bits = bits_per_byte(model, on, length, most=20)
            print(f"        {share:.0%} of needles, {bits:.3f} bits a byte", flush=True)
        if done % 100 == 0 or done == plan.steps:
            kept = {name: optimizer.state_dict() for name, optimizer in chosen.items()}
            beside = given.checkpoint.with_suffix(".part")
            torch.save({"step": done, "model": model.state_dict()} | kept, beside)
            os.replace(beside, given.checkpoint)
    export(model, folder)


if __name__ == "__main__":
    main()
