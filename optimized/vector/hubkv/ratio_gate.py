"""The ratio gate in two passes."""

from torch import Tensor

from reference.precision import widen


def gate(scores: Tensor, corrected: Tensor, ratio: float, power: float) -> Tensor:
    strength = float(ratio) ** power
    mixed = widen(scores) * (1 - strength)
    return mixed.add(widen(corrected), alpha=strength).to(scores.dtype)
