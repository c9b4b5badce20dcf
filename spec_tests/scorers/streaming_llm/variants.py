"""Another way to score positions."""

import torch

from reference import Scored
from spec_tests.scorers.dense_attention import ends, real
from spec_tests.variants.registry import register_variant


@register_variant("streaming_llm")
def from_the_end(keys, sinks=4, valid=None):
    """Subtract the number of later tokens from that of all tokens."""
    mask = real(valid, keys)
    after = keys.shape[-2] - 1 - torch.arange(keys.shape[-2])
    position = (mask.sum(-1, keepdim=True) - after).clamp(min=0)
    dtype = torch.promote_types(keys.dtype, torch.float32)
    scores = position.to(dtype)[..., None, :].expand(keys.shape[:-1]).clone()
    return Scored(scores, ends(mask, sinks, 0, keys.shape[-3]))
