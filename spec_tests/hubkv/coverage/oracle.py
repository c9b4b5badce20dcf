"""Coverage in exact arithmetic: sums over `Fraction`, optima by trying every set."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

Weights = list[list[Fraction]]


def subsets(tokens: int) -> Tensor:
    """Return all subsets as masks: bit j of a row's index says whether token j is in the set."""
    return (torch.arange(2**tokens)[:, None] >> torch.arange(tokens)) % 2 == 1


def members(kept: Tensor) -> list[int]:
    """Return the positions that a mask marks."""
    return kept.nonzero().flatten().tolist()


def window_kernel_values(tokens: int, radius: int) -> list[Fraction]:
    """Return K(0), ..., K(tokens - 1) of a window kernel."""
    return [Fraction(distance <= radius) for distance in range(tokens)]


def weights(scores: Sequence[Fraction], kernel: Sequence[Fraction]) -> Weights:
    """Return w[i][j] = s_j K(|i - j|) / Z_j."""
    positions = range(len(scores))
    totals = [sum((kernel[abs(j - k)] for k in positions), Fraction(0)) for j in positions]
    return [[scores[j] * kernel[abs(i - j)] / totals[j] for j in positions] for i in positions]


def utility(w: Weights, kept: Iterable[int]) -> Fraction:
    """Return F(S), the sum over places of the best weight from S."""
    tokens_kept = list(kept)
    return sum((max((row[j] for j in tokens_kept), default=Fraction(0)) for row in w), Fraction(0))


def gain(w: Weights, k: int, kept: Iterable[int]) -> Fraction:
    """Return F(S + k) - F(S)."""
    tokens_kept = list(kept)
    return utility(w, [*tokens_kept, k]) - utility(w, tokens_kept)


def overlap(w: Weights, i: int, hub: int) -> Fraction:
    """Return the share of i's coverage that the hub already provides."""
    return sum((min(row[i], row[hub]) for row in w), Fraction(0)) / utility(w, [i])


def optimum(w: Weights, keep: int, among: Sequence[int] | None = None) -> Fraction:
    """Return the largest utility of a set of `keep` tokens, by trying every set."""
    candidates = range(len(w)) if among is None else among
    return max(utility(w, chosen) for chosen in combinations(candidates, keep))


def top(scores: Tensor, keep: int) -> list[int]:
    """Return the best positions, by descending score, then by ascending index."""
    return scores.argsort(descending=True, stable=True)[:keep].tolist()


class Cluster(NamedTuple):
    """A plateau of B ones, and B - 1 hubs too far apart to overlap."""

    scores: list[Fraction]
    plateau: list[int]
    hubs: list[int]

    @property
    def spread(self) -> list[int]:
        """The set of one plateau token and every hub."""
        return [self.plateau[0], *self.hubs]

    def mask(self, kept: Iterable[int]) -> Tensor:
        """Return a set as a mask."""
        tokens_kept = set(kept)
        return torch.tensor([position in tokens_kept for position in range(len(self.scores))])


def redundant_cluster(budget: int, radius: int, hub: Fraction) -> Cluster:
    """Return the instance of the remark, with hubs of score `hub` more than 2 `radius` apart."""
    plateau = list(range(radius, radius + budget))
    hubs = [plateau[-1] + step * (2 * radius + 1) for step in range(1, budget)]
    scores = [Fraction(0)] * (hubs[-1] + radius + 1)
    for position in plateau:
        scores[position] = Fraction(1)
    for position in hubs:
        scores[position] = hub
    return Cluster(scores, plateau, hubs)
