"""Lifts of a graph by one indexed write."""

import numpy as np
import torch
from torch import Tensor

from reference.hex.expander import DRAWS, Expander
from reference.hex.spectrum import ROUNDING, ramanujan_bound


def lift(mask: Tensor, permutations: Tensor) -> Tensor:
    tokens, channels = mask.shape
    sheets = permutations.shape[1]
    lifted = mask.new_zeros(tokens, sheets, channels, sheets)
    token, channel = mask.nonzero(as_tuple=True)
    copies = torch.arange(sheets, device=mask.device)
    lifted[token[:, None], copies, channel[:, None], permutations] = True
    return lifted.reshape(sheets * tokens, sheets * channels)


def new_singular_value(mask: Tensor, permutations: Tensor) -> float:
    lifted = lift(mask, permutations).double()
    sheets = permutations.shape[1]
    base = mask.double().repeat_interleave(sheets, 0).repeat_interleave(sheets, 1)
    new = lifted - base / sheets
    return torch.linalg.matrix_norm(new, 2).item() if new.numel() else 0.0


def ramanujan_lift(mask: Tensor, sheets: int, seed: int) -> Expander:
    bound = ramanujan_bound(int(mask[0].sum()), int(mask[:, 0].sum()))
    for draw in range(DRAWS):
        generator = np.random.RandomState([seed, draw, 3])
        keys = generator.random_sample((int(mask.sum()), sheets))
        permutations = torch.from_numpy(np.argsort(keys, axis=1, kind="stable")).to(mask.device)
        if new_singular_value(mask, permutations) <= bound * ROUNDING:
            return Expander(lift(mask, permutations), draw + 1)
    raise RuntimeError(f"no Ramanujan lift among {DRAWS} draws of {sheets} sheets")
