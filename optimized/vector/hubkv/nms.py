"""Non-maximum suppression as a discount of all but the vectorised hubs."""

from torch import Tensor

from optimized.vector.hubkv.discount import discount, hub_mask


def nms(scores: Tensor, radius: int, factor: float) -> Tensor:
    return discount(scores, hub_mask(scores, radius, None), factor)
