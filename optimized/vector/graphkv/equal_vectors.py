"""Tokens with the same vector, found without comparing every pair."""

import torch
from torch import Tensor

ODD = -0x61C8864680B583EB  # 2^64 divided by the golden ratio, as int64


def first_equal(vectors: Tensor) -> Tensor:
    """Return, for each token, the first token with an equal vector: itself, unless it has a twin.

    Tokens are grouped by a hash of their bits and compared with the first of their group, so that
    a collision can hide a twin, never invent one.
    """
    tokens = vectors.shape[-2]
    order = torch.arange(tokens, device=vectors.device)
    if not vectors.numel():
        return order.expand(vectors.shape[:-1])
    ranked, order = _hash(vectors).sort(dim=-1, stable=True)
    opens = torch.ones_like(ranked, dtype=torch.bool)
    opens[..., 1:] = ranked[..., 1:] != ranked[..., :-1]
    start = torch.arange(tokens, device=vectors.device).where(opens, 0).cummax(-1).values
    first = torch.empty_like(order).scatter_(-1, order, order.gather(-1, start))
    same = (vectors == vectors.take_along_dim(first[..., None], -2)).all(-1)
    return torch.where(same, first, torch.arange(tokens, device=vectors.device))


def _hash(vectors: Tensor) -> Tensor:
    """Sum up the bits of each vector in int64, eight bytes at a time: exact in any order."""
    unsigned = vectors + 0.0  # -0 equals 0
    if vectors.dtype == torch.float32 and vectors.shape[-1] % 2:
        unsigned = torch.nn.functional.pad(unsigned, (0, 1))
    codes = unsigned.contiguous().view(torch.int64)
    place = torch.arange(1, codes.shape[-1] + 1, device=codes.device)
    return _mixed(codes * (_mixed(place * ODD) * ODD | 1)).sum(-1)


def _mixed(codes: Tensor) -> Tensor:
    return codes ^ (codes >> 29)
