"""How alike keys are and where they lie, without loops over pairs or heads."""

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from optimized.vector.graphkv import edges
from reference.graphkv.keys import CosineDistribution, kv_bytes
from reference.graphkv.needle import hide_needle

__all__ = [
    "cosine_distribution",
    "cosine_matrix",
    "hide_needle",
    "kv_bytes",
    "needle_recall",
    "principal_components",
]


def cosine_matrix(
    keys: Float[Tensor, "*heads tokens width"],
) -> Float[Tensor, "*heads tokens tokens"]:
    every = torch.arange(keys.shape[-2], device=keys.device)
    return edges(keys, every.expand(keys.shape[:-1]))


def cosine_distribution(
    keys: Float[Tensor, "*heads tokens width"], bins: int = 50
) -> CosineDistribution:
    similarity = cosine_matrix(keys)
    first, second = torch.triu_indices(*similarity.shape[-2:], offset=1, device=keys.device)
    pairs = similarity[..., first, second]
    number = max(1, len(first))
    mean = pairs.sum(-1) / number
    variance = (pairs - mean[..., None]).square_().sum(-1) / number
    place = ((pairs + 1) * (bins / 2)).long().clamp_(max=bins - 1)
    histogram = place.new_zeros(*place.shape[:-1], bins)
    return CosineDistribution(
        mean, variance, histogram.scatter_add_(-1, place, torch.ones_like(place))
    )


def principal_components(
    keys: Float[Tensor, "*heads tokens width"], components: int = 2
) -> Float[Tensor, "*heads tokens components"]:
    dtype = torch.promote_types(keys.dtype, torch.float32)
    if not keys.numel():
        return keys.new_zeros(*keys.shape[:-1], components, dtype=dtype)
    centred = keys.double() - keys.double().mean(-2, keepdim=True)
    axes = torch.linalg.eigh(centred.mT @ centred).eigenvectors[..., -components:].flip(-1)
    largest = axes.take_along_dim(axes.abs().argmax(-2, keepdim=True), -2)
    return (centred @ (axes * largest.sign())).to(dtype)


def needle_recall(
    responses: Int64[Tensor, "*grid said"], answer: Int64[Tensor, " words"]
) -> Float[Tensor, "*grid"]:
    wanted = answer.unique()
    return (responses[..., None] == wanted).any(-2).sum(-1) / len(wanted)
