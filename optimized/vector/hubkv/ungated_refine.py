"""HubKV without its gate: its refinement at ratio 1."""

from torch import Tensor

from optimized.vector.hubkv.refine import hubkv_refine


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
    bounds = dict(minimum=minimum, maximum=maximum)
    return hubkv_refine(scores, 1.0, protected, radius, gamma, tau, epsilon=epsilon, **bounds)
