"""StreamingLLM's positions; without padding they are counted once for all heads."""

import torch
from torch import Tensor

from reference.precision import widest
from reference.scorers.scored import Scored


def streaming_llm(keys: Tensor, sinks: int, valid: Tensor | None) -> Scored:
    shape, tokens = keys.shape[:-1], keys.shape[-2]
    if valid is not None:
        position = valid.cumsum(-1)[..., None, :].expand(shape)
        protected = valid[..., None, :] & (position <= sinks)
        return Scored(position.to(widest(keys)), protected)
    position = torch.arange(1, tokens + 1, dtype=widest(keys), device=keys.device)
    protected = torch.zeros(shape, dtype=torch.bool, device=keys.device)
    protected[..., :sinks] = True
    return Scored(position.expand(shape).contiguous(), protected)
