"""Protected tokens of rows with left padding."""

from torch import Tensor

from reference.hubkv.refine import at_ends


def protected_ends(valid: Tensor, kv_heads: int, sinks: int, recent: int | None) -> Tensor:
    position, count = valid.cumsum(-1) - 1, valid.sum(-1, keepdim=True)
    ends = count // 50 if recent is None else recent
    marked = valid & at_ends(position, count, sinks, ends)
    *batch, tokens = valid.shape
    return marked[..., None, :].expand(*batch, kv_heads, tokens).contiguous()
