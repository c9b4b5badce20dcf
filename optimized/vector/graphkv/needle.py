"""Needle recall of all responses at once."""

from torch import Tensor


def needle_recall(responses: Tensor, answer: Tensor) -> Tensor:
    wanted = answer.unique()
    return (responses[..., None] == wanted).any(-2).sum(-1) / len(wanted)
