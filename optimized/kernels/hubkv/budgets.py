"""Scores refined without a gate: the kernels of refinement, at a ratio of 1."""

from torch import Tensor

from optimized.kernels.hubkv.refine import hubkv_refine


def ungated_refine(
    scores: Tensor,
    protected: Tensor | None,
    radius: int,
    gamma: float,
    tau: float,
    minimum: float,
    maximum: float,
    epsilon: float,
) -> Tensor:
    # a ratio of 1 is 1 to any power
    return hubkv_refine(scores, 1.0, protected, radius, gamma, tau, minimum, maximum, 1.0, epsilon)
