"""How evenly picks spread over the context, and two orders to hold against them."""

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import indexing, nonnegative_at_most
from reference.contract.types import Positive, Seed, Whole, Wholes


def inside(order: Tensor, tokens: int) -> None:
    """Refuse positions beyond the last token."""
    indexing("order", order, tokens)


@requires(inside)
def segment_coverage(
    order: Wholes[Tensor, "*batch picks"], tokens: Whole, segments: Positive = 64
) -> Float[Tensor, "*batch picks"]:
    r"""Say for each pick which share of the context it is the first to touch.

    $$g_t = \tfrac{1}{m}\, \mathbb{I}\bigl(\sigma(o_t) \notin \{\sigma(o_1), \dots,
      \sigma(o_{t-1})\}\bigr), \qquad \sigma(i) = \Bigl\lfloor \frac{m\, i}{n} \Bigr\rfloor$$

    Args:
        order: positions $o_1, o_2, \dots$ in the order picked, each in $[0, n)$.
        tokens: length $n$ of the content region.
        segments: number $m$ of segments of equal width.

    Returns:
        The marginal coverage $g_t$ of each pick, $1/m$ or 0, in float32. Its running sum is the
        share of segments touched so far.

    Source:
        HubKV-Obs1. In words (I): "the marginal spatial gain is $1/64$ if the selected token falls
        in a segment not previously covered, and 0 otherwise". Widths are ours where they differ
        (E-U21).

    Reading:
        E-U21, E-U46: where $m$ does not divide $n$, widths differ by one token; a new segment
        counts $1/m$, as in Appendix I, not 1.
    """
    touched = torch.zeros(*order.shape[:-1], segments, dtype=torch.bool, device=order.device)
    gains = torch.zeros(order.shape, dtype=torch.float32, device=order.device)
    for t in range(order.shape[-1]):
        segment = segments * order[..., t, None] // tokens
        gains[..., t] = torch.where(touched.gather(-1, segment)[..., 0], 0.0, 1 / segments)
        touched.scatter_(-1, segment, True)
    return gains


def apart(picks: int, tokens: int) -> None:
    """Refuse more picks than tokens."""
    nonnegative_at_most("picks", picks, tokens)


@requires(apart)
def uniform_spread(tokens: Whole, picks: Whole) -> Int64[Tensor, "picks"]:
    r"""Place picks evenly over the context: the oracle-style reference line.

    $$o_k = \Bigl\lceil \frac{k\, n}{K} \Bigr\rceil, \qquad k = 0, \dots, K - 1$$

    Args:
        tokens: length $n$ of the content region.
        picks: number $K$ of positions, at most $n$.

    Returns:
        The positions $o$ in rising order. Their gaps differ by at most one token.

    Source:
        HubKV-I. In words (I): "places selected tokens evenly across the content sequence". Rounding
        up is ours (E-U33).

    Reading:
        E-U33: rounding up puts one pick in each of $K$ segments; rounding down does not. Of
        another number of segments a ranking may touch more.
    """
    return torch.tensor([-(-k * tokens // picks) for k in range(picks)], dtype=torch.int64)


def random_order(tokens: Whole, seed: Seed) -> Int64[Tensor, "tokens"]:
    r"""Shuffle the positions: the fixed random baseline.

    $$o \sim \mathrm{Uniform}(\mathfrak{S}_n)$$

    Args:
        tokens: length $n$ of the content region.
        seed: seed of the generator.

    Returns:
        A permutation of $0, \dots, n - 1$, the same on every machine and in every version of
        NumPy, whose legacy generator is frozen.

    Source:
        HubKV-I. In words (I): "with a fixed random-order baseline".

    Reading:
        E-U33: the paper fixes an order and does not give it.
    """
    order = np.random.RandomState(seed).permutation(tokens)
    return torch.from_numpy(order.astype(np.int64))
