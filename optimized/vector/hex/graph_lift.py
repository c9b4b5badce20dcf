"""Lifts of a graph by one indexed write."""

import torch
from torch import Tensor

import reference
from optimized._rebind import rebind


def lift(mask: Tensor, permutations: Tensor) -> Tensor:
    tokens, channels = mask.shape
    sheets = permutations.shape[1]
    lifted = mask.new_zeros(tokens, sheets, channels, sheets)
    token, channel = mask.nonzero(as_tuple=True)
    copies = torch.arange(sheets, device=mask.device)
    lifted[token[:, None], copies, channel[:, None], permutations] = True
    return lifted.reshape(sheets * tokens, sheets * channels)


new_singular_value = rebind(reference.new_singular_value, lift=lift)
ramanujan_lift = rebind(reference.ramanujan_lift, lift=lift, new_singular_value=new_singular_value)
