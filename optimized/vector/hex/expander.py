"""Expander masks without loops over edges; random draws and masks equal the reference's."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from optimized._cached_tensors import cached_tensors
from optimized.vector.hex.random_biregular import connect, pairing, swaps
from optimized.vector.hex.spectrum import BipartiteGraph, is_within
from reference.hex.expander import DRAWS, Expander, biregular_degrees, none_found
from reference.hex.presets import HexConfig
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
        if not certified or is_within(BipartiteGraph.of_pairs(graph.pairs, channels), bound):
            return Expander(graph.mask(channels), draw + 1)
    none_found(tokens, channels, token_degree)


def expander_mask(
    tokens: int, channels: int, density: float, seed: int, near: bool, tile: bool, block: int
) -> Tensor:
    if tile:
        return expander_mask(block, channels, density, seed, near, False, block).repeat(
            tokens // block, 1
        )
    degrees = biregular_degrees(tokens, channels, density, near)
    return random_expander(tokens, channels, degrees.token, seed, near).mask


_recent_masks = cached_tensors(8)(expander_mask)


def static_mask(config: HexConfig, tokens: int, channels: int) -> Tensor:
    if config.density in (0, 1):
        return torch.full((tokens, channels), config.density == 1)
    how = config.seed, config.near, config.tile, config.block
    return _recent_masks(tokens, channels, config.density, *how)
