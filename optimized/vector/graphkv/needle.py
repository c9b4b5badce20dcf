"""Recall of all responses at once."""

from torch import Tensor

from reference.graphkv.needle import hide_needle

__all__ = ["hide_needle", "needle_recall"]


def needle_recall(responses: Tensor, answer: Tensor) -> Tensor:
    wanted = answer.unique()
    return (responses[..., None] == wanted).any(-2).sum(-1) / len(wanted)
