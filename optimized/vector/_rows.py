"""Rows of a batch that begin at different tokens."""

import torch
from torch import Tensor


def real(valid: Tensor | None, like: Tensor) -> Tensor:
    """Return `valid`, or all true, for tokens on the last axis but one of `like`, without heads."""
    if valid is not None:
        return valid
    *batch, _, tokens, _ = like.shape
    return torch.ones(*batch, tokens, dtype=torch.bool, device=like.device)


def protected(valid: Tensor, kv_heads: int, sinks: int, recent: int | None) -> Tensor:
    """Mark the first and the last real tokens of each row, for every head."""
    place, count = valid.cumsum(-1) - 1, valid.sum(-1, keepdim=True)
    ends = count // 50 if recent is None else recent
    marked = valid & ((place < sinks) | (place >= count - ends))
    *batch, tokens = valid.shape
    return marked[..., None, :].expand(*batch, kv_heads, tokens).contiguous()
