"""The FastKVzip gates of a model: trained on KVzip's scores, saved beside the model's weights."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

import optimized
from optimized import GateWeights, train_fastkvzip
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.layer import count_full_attention_layers, key_heads_and_width
from optimized.models.prefill import Step, prefill
from optimized.models.scorers.kvzip import KVzip

FILE = "gate.safetensors"


def load_gates(
    folder: Path, layers: int, device: torch.device | str = "cpu"
) -> list[GateWeights] | None:
    """Return the gate of each layer, or None where the folder has no file of gates.

    Raises:
        ValueError: the file is damaged, or of another model.
    """
    file = folder / FILE
    if not file.exists():
        return None
    try:
        tensors = load_file(file, str(device))
        return [
            GateWeights(*(tensors[f"{layer}.{name}"].float() for name in GateWeights._fields))
            for layer in range(layers)
        ]
    except (KeyError, OSError, SafetensorError) as error:
        raise ValueError(f"{file} must hold a gate for each of {layers} layers: {error}") from error


def save_gates(gates: list[GateWeights], folder: Path) -> None:
    """Write the gate of each layer to a folder, in 16 bits."""
    tensors = {
        f"{layer}.{name}": tensor.half().contiguous()
        for layer, gate in enumerate(gates)
        for name, tensor in gate._asdict().items()
    }
    save_file(tensors, folder / FILE)


def learn_gates(
    model: PreTrainedModel, prompts: Iterable[Tensor], seed: int = 0, **how: Any
) -> list[GateWeights]:
    """Train the gate of each layer on KVzip's scores of some prompts, and return the gates.

    Args:
        model: the attached model.
        prompts: token ids, one row at a time.
        seed: the seed of the initial gates.
        how: arguments of `train_fastkvzip`, such as `steps` and `sample`; `prompt`, `chunk` and
            `sinks` of KVzip.
    """
    asking = {name: how.pop(name) for name in ("prompt", "chunk", "sinks") if name in how}
    layers = count_full_attention_layers(model.config)
    hidden: list[list[Tensor]] = [[] for _ in range(layers)]
    targets: list[list[Tensor]] = [[] for _ in range(layers)]

    def watch(step: Step) -> None:
        hidden[step.layer].append(step.hidden[0])

    for ids in prompts:
        read = prefill(model, ids, watch=[watch])
        scores = KVzip(model, optimized, **asking).finish(read, keep=1)
        for layer, scored in enumerate(scores.scored):
            targets[layer].append(scored.scores[0])
    group = model.config.num_attention_heads // key_heads_and_width(model.config)[0]
    return [
        train_fastkvzip(torch.cat(x), torch.cat(y, -1), group, seed=seed, **how)
        for x, y in zip(hidden, targets, strict=True)
    ]
