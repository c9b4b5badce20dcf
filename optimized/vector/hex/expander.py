"""Expander masks without loops over edges; random draws and masks equal the reference's."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

import reference
from optimized._cached_tensors import cached_tensors
from optimized._rebind import rebind
from optimized.vector.hex.random_biregular import connect, pairing, swaps
from optimized.vector.hex.spectrum import BipartiteGraph, is_within
from reference.hex import expander
from reference.hex.expander import DRAWS, Expander, none_found
from reference.hex.spectrum import ramanujan_bound


class _Draw(NamedTuple):
    """A simple graph, or the complement of a dense one."""

    pairs: np.ndarray
    dense: bool

    def mask(self, channels: int) -> Tensor:
        """Return the biadjacency matrix."""
        mask = torch.zeros(len(self.pairs), channels, dtype=torch.bool)
        mask.scatter_(1, torch.from_numpy(self.pairs), True)
        return ~mask if self.dense else mask


def _draw_graph(tokens: int, channels: int, token_degree: int, seed: int, draw: int) -> _Draw:
    dense = 2 * token_degree > channels
    drawn = channels - token_degree if dense else token_degree
    pairs = swaps(pairing(tokens, channels, drawn, seed, draw), channels, seed, draw)
    return _Draw(pairs if dense else connect(pairs, channels, seed, draw), dense)


def random_expander(
    tokens: int,
    channels: int,
    token_degree: int,
    seed: int,
    near: bool,  # noqa: ARG001 the contract reads it
) -> Expander:
    channel_degree, uneven = divmod(tokens * token_degree, channels)
    certified = not uneven and min(token_degree, channel_degree) >= 3
    bound = ramanujan_bound(token_degree, channel_degree) if certified else 0.0
    for draw in range(DRAWS):
        graph = _draw_graph(tokens, channels, token_degree, seed, draw)
        # a biregular graph and its complement differ in the first singular value alone
        if not certified or is_within(BipartiteGraph(graph.pairs, channels), bound):
            return Expander(graph.mask(channels), draw + 1)
    none_found(tokens, channels, token_degree)


expander_mask = rebind(reference.expander_mask, random_expander=random_expander)
_recent_masks = cached_tensors(8)(expander_mask)
static_mask = rebind(expander.static_mask, _recent_masks=_recent_masks)
