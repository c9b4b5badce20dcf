"""`python -m optimized.tiny.train MODEL --checkpoint FILE`: train a shipped model.

Every batch is drawn from the seed and the number of the step, so a run that resumes from its
checkpoint sees the same batches as an uninterrupted one.
"""

import argparse
import os
import shutil
import time
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
from optimized.tiny.muon import Muon
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
        for text, weight in draw_task_row(on, rng, stage.length, stage.shares):
            found += text
            weights += [weight] * len(text)
        found.append(on.end)
        weights.append(1.0)
    return found[: stage.length + 1], weights[: stage.length + 1]


def batch(on: TokenizedCorpus, plan: Plan, seed: int, step: int) -> tuple[Tensor, Tensor]:
    """Return the tokens of a step and their weights."""
    stage = plan.stage_of(step)
    rngs = (Random(f"{seed} {step} {place}") for place in range(stage.rows))
    found, weights = zip(*(filled(on, rng, stage) for rng in rngs), strict=True)
    return torch.tensor(found), torch.tensor(weights)


def optimizers(model: LlamaForCausalLM, plan: Plan) -> dict[str, torch.optim.Optimizer]:
    """Return Muon for the matrices of the layers, and AdamW for the other weights."""
    inside = [weight for weight in model.model.layers.parameters() if weight.ndim == 2]
    taken = {id(weight) for weight in inside}
    rest = [weight for weight in model.parameters() if id(weight) not in taken]
    return {
        "muon": Muon(inside, lr=MUON, decay=0.02),
        "adam": torch.optim.AdamW(rest, lr=plan.adam, betas=(0.9, 0.95), weight_decay=0.0),
    }


def save(state: dict[str, Any], file: Path) -> None:
    """Write a checkpoint atomically."""
    beside = file.with_suffix(".part")
    torch.save(state, beside)
    os.replace(beside, file)


def export(model: LlamaForCausalLM, tokenizer: Path, folder: Path) -> None:
    """Write a pretrained model, with weights in float16 and float32 as the dtype of computation."""
    halved = LlamaForCausalLM(model.config)
    halved.load_state_dict(model.state_dict())
    halved.half().save_pretrained(folder)
    shape = LlamaConfig.from_pretrained(folder)
    shape.dtype = torch.float32
    shape.save_pretrained(folder)
    for file in tokenizer.glob("tokenizer*"):
        if folder != tokenizer:
            shutil.copy(file, folder)


def arguments() -> argparse.Namespace:
    """Return the parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m optimized.tiny.train")
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--checkpoint", type=Path, required=True, help="the file to resume from")
    parser.add_argument("--out", type=Path, help="the folder of the trained model")
    parser.add_argument("--seed", type=int, default=0)
    on_gpu = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=on_gpu)
    parser.add_argument("--bf16", action="store_true", help="slower on a CPU that emulates it")
    parser.add_argument("--minutes", type=float, default=3.0, help="time between checkpoints")
    return parser.parse_args()


def main() -> None:
    """Train to the last step, then write the model."""
    given = arguments()
    torch.manual_seed(given.seed)
    folder, plan = MODELS[given.model], PLANS[given.model]
    on = TokenizedCorpus(folder)
    model = LlamaForCausalLM(config(plan, on)).to(given.device)
    chosen = optimizers(model, plan)
    rates = {"muon": MUON, "adam": plan.adam}
    state: dict[str, Any] = {"step": 0, "seconds": 0.0, "losses": [], "figures": []}
    if given.checkpoint.exists():
        state = torch.load(given.checkpoint, map_location=given.device)
        model.load_state_dict(state["model"])
        for name, optimizer in chosen.items():
            optimizer.load_state_dict(state[name])
    start = saved = time.monotonic() - state["seconds"]
    for step in range(state["step"], plan.steps):
        found, weights = (part.to(given.device) for part in batch(on, plan, given.seed, step))
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
        hard = scale == scale.max()
        state["losses"].append((loss.item(), each[hard].mean().item()))
        state["step"] = step + 1
        if state["step"] % 20 == 0:
            recent = torch.tensor(state["losses"][-20:]).mean(0).tolist()
            words = f"loss {recent[0]:.3f}, answers {recent[1]:.3f}"
            print(f"{time.monotonic() - start:6.0f} s, step {step + 1}: {words}", flush=True)
        if state["step"] % 200 == 0:
            length = min(plan.stage_of(step).length, 1900) - 60
            share = needle_accuracy(model, on, length, range(20))
            bits = bits_per_byte(model, on, plan.stage_of(step).length, most=20)
            state["figures"].append((step + 1, length, share, bits))
            print(f"        {share:.0%} of needles, {bits:.3f} bits a byte", flush=True)
        if time.monotonic() - saved > given.minutes * 60 or state["step"] == plan.steps:
            saved = time.monotonic()
            state["seconds"] = saved - start
            kept = {name: optimizer.state_dict() for name, optimizer in chosen.items()}
            save(state | kept | {"model": model.state_dict()}, given.checkpoint)
    export(model, folder, given.out or folder)


if __name__ == "__main__":
    main()
