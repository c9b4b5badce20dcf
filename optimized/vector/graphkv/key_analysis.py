"""Cosine similarities and principal components of keys, without loops over pairs or heads."""

import torch
from torch import Tensor

from optimized._doubles import doubles_on_cpu
from optimized.vector.graphkv.graph import edges
from reference.graphkv.key_analysis import CosineDistribution


def cosine_matrix(keys: Tensor) -> Tensor:
    every = torch.arange(keys.shape[-2], device=keys.device)
    return edges(keys, every.expand(keys.shape[:-1]), "kk", None, None, False)


def cosine_distribution(keys: Tensor, bins: int) -> CosineDistribution:
    similarity = cosine_matrix(keys)
    first, second = torch.triu_indices(*similarity.shape[-2:], offset=1, device=keys.device)
    pairs = similarity[..., first, second]
    number = max(1, len(first))
    mean = pairs.sum(-1) / number
    variance = (pairs - mean[..., None]).square_().sum(-1) / number
    bin_of_pair = ((pairs + 1) * (bins / 2)).long().clamp_(max=bins - 1)
    histogram = bin_of_pair.new_zeros(*bin_of_pair.shape[:-1], bins)
    return CosineDistribution(
        mean, variance, histogram.scatter_add_(-1, bin_of_pair, torch.ones_like(bin_of_pair))
    )


@doubles_on_cpu
def principal_components(keys: Tensor, components: int) -> Tensor:
    dtype = torch.promote_types(keys.dtype, torch.float32)
    if not keys.numel():
        return keys.new_zeros(*keys.shape[:-1], components, dtype=dtype)
    keys = keys.double()
    centred = keys - keys.mean(-2, keepdim=True)
    axes = torch.linalg.eigh(centred.mT @ centred).eigenvectors[..., -components:].flip(-1)
    largest = axes.take_along_dim(axes.abs().argmax(-2, keepdim=True), -2)
    return (centred @ (axes * largest.sign())).to(dtype)
