"""What the paper's observations measure: how importance clusters, and what Top-K then misses."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from reference import errors
from reference.hubkv.discount import hub_mask
from reference.precision import widen


class NmsSettings(NamedTuple):
    """What `nms` takes beside the scores, for a pipeline to pass on.

    Source:
        HubKV-Obs3.
    """

    radius: int = 3
    factor: float = 0.3


def segment_coverage(
    order: Int[Tensor, "*batch picks"], tokens: int, segments: int = 64
) -> Float[Tensor, "*batch picks"]:
    r"""Say for each pick which share of the context it is the first to touch.

    $$g_t = \tfrac{1}{m}\, \mathbb{I}\bigl(\sigma(o_t) \notin \{\sigma(o_1), \dots,
      \sigma(o_{t-1})\}\bigr), \qquad \sigma(i) = \Bigl\lfloor \frac{m\, i}{n} \Bigr\rfloor$$

    Args:
        order: positions $o_1, o_2, \dots$ in the order picked, each in $[0, n)$.
        tokens: length $n$ of the content region, at least 0.
        segments: number $m$ of segments of equal width, at least 1.

    Returns:
        The marginal coverage $g_t$ of each pick, $1/m$ or 0, in float32. Its running sum is the
        share of segments touched so far.

    Raises:
        TypeError: `order` is not int64, or `tokens` or `segments` not an integer.
        ValueError: a position is outside $[0, n)$, `tokens` is negative, or `segments` below 1.

    Source:
        HubKV-Obs1.

    Reading:
        E-U21: where $m$ does not divide $n$, widths differ by one token.
    """
    errors.whole("tokens", tokens)
    errors.whole("segments", segments, 1)
    errors.positions("order", order, tokens)
    touched = torch.zeros(*order.shape[:-1], segments, dtype=torch.bool, device=order.device)
    gains = torch.zeros(order.shape, dtype=torch.float32, device=order.device)
    for t in range(order.shape[-1]):
        segment = segments * order[..., t, None] // tokens
        gains[..., t] = torch.where(touched.gather(-1, segment)[..., 0], 0.0, 1 / segments)
        touched.scatter_(-1, segment, True)
    return gains


def autocorrelation(
    values: Float[Tensor, "*batch tokens"], distances: int
) -> Float[Tensor, "*batch {distances}+1"]:
    r"""Correlate a sequence with itself, shifted.

    $$R(d) = \frac{\mathbb{E}_i[(s_i - \bar s)(s_{i+d} - \bar s)]}{\mathbb{E}_i[(s_i - \bar s)^2]}$$

    Args:
        values: the sequence $s$, finite.
        distances: largest distance $d$, below the number of tokens $n$.

    Returns:
        $R(0), \dots, R(d)$, in float32, or float64 where `values` are. $R(0)$ is 1; the others
        may leave [-1, 1], because each averages over its own $n - d$ pairs. A constant sequence
        gives 0 throughout.

    Raises:
        TypeError: `values` is not floating point, or `distances` not an integer.
        ValueError: a value is NaN or infinite, or `distances` is not in $[0, n - 1]$.

    Source:
        HubKV-Obs2.

    Reading:
        E-U21: the mean runs over the $n - d$ pairs there are; for a constant sequence 0/0 counts
        as 0.
    """
    errors.floating("values", values)
    errors.finite("values", values)
    tokens = values.shape[-1]
    errors.whole("distances", distances, 0, tokens - 1)
    # in float64, where the squares of float32 numbers neither overflow nor vanish
    exact = values.double()
    centred = exact - exact.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1)
    # a rounded mean leaves a constant sequence a variance, and a tiny variance may vanish
    constant = (values == values[..., :1]).all(-1) | (variance == 0)
    correlations = [
        (centred[..., : tokens - d] * centred[..., d:]).mean(-1) / variance
        for d in range(distances + 1)
    ]
    found = torch.stack(correlations, -1).masked_fill(constant[..., None], 0)
    return found.to(widen(values).dtype)


def nms(
    scores: Float[Tensor, "*heads tokens"], radius: int = 3, factor: float = 0.3
) -> Float[Tensor, "*heads tokens"]:
    r"""Suppress all but the local maxima: the diagnostic that came before soft discounting.

    $$\hat s_i = \begin{cases} s_i & i = \arg\max_{|j - i| \le k} s_j \\
      \phi\, s_i & \text{otherwise} \end{cases}$$

    Args:
        scores: importance $s$, finite and at least 0.
        radius: half-width $k$ of the neighbourhood, at least 0: 3 is the paper's size of 7.
        factor: what is left of a suppressed score, $\phi$ in [0, 1].

    Returns:
        The suppressed scores $\hat s$, bit for bit `scores` at the local maxima.

    Raises:
        TypeError: `scores` is not floating point, or `radius` not an integer.
        ValueError: a score is negative, NaN or infinite, `radius` is negative, or `factor` is
            outside [0, 1].

    Source:
        HubKV-Obs3.

    Reading:
        E-U20: a preset of its own, not the method's radius 2 and factor 0.5; of a plateau, the
        lowest index is the maximum, as everywhere.
    """
    errors.importance("scores", scores)
    errors.fraction("factor", factor)
    return torch.where(hub_mask(scores, radius), scores, factor * scores)


def distance_profile(
    weights: Float[Tensor, "*heads queries tokens"], distances: int = 128
) -> Float[Tensor, "*heads {distances}+1"]:
    r"""Average the attention weight over all pairs of a query and a key at a distance.

    $$a(d) = \mathbb{E}_{(q, t)\,:\, p_q - t = d}\bigl[A_{q,t}\bigr],
      \qquad p_q = n - n_q + q$$

    Args:
        weights: attention weights $A$ of $n_q$ queries over $n$ tokens, finite and at least 0;
            the queries are the last positions.
        distances: largest distance $d$, below the number of tokens.

    Returns:
        $a(0), \dots, a(d)$, in float32, or float64 where `weights` are. $a(0)$ is the mean weight
        of a token on itself.

    Raises:
        TypeError: `weights` is not floating point, or `distances` not an integer.
        ValueError: a weight is negative, NaN or infinite, there is no query or there are more
            than tokens, or `distances` is not in $[0, n - 1]$.

    Source:
        HubKV-I.

    Reading:
        E-U33: the paper stores such profiles and does not define them.
    """
    errors.floating("weights", weights, axes=2)
    errors.importance("weights", weights)
    queries, tokens = weights.shape[-2:]
    errors.whole("distances", distances, 0, tokens - 1)
    errors.whole("number of queries in weights", queries, 1, tokens)
    weights = widen(weights)
    profile = weights.new_zeros(*weights.shape[:-2], distances + 1)
    for d in range(distances + 1):
        seen = [(q, tokens - queries + q - d) for q in range(queries)]
        pairs = [weights[..., q, t] for q, t in seen if t >= 0]
        profile[..., d] = torch.stack(pairs).mean(0)
    return profile


def uniform_spread(tokens: int, picks: int) -> Int[Tensor, "picks"]:
    r"""Place picks evenly over the context: the reference line that no ranking can beat.

    $$o_k = \Bigl\lceil \frac{k\, n}{K} \Bigr\rceil, \qquad k = 0, \dots, K - 1$$

    Args:
        tokens: length $n$ of the content region, at least 0.
        picks: number $K$ of positions, at most $n$.

    Returns:
        The positions $o$ in rising order. Their gaps differ by at most one token.

    Raises:
        TypeError: `tokens` or `picks` is not an integer.
        ValueError: `tokens` is negative, or `picks` is not in $[0, n]$.

    Source:
        HubKV-I.

    Reading:
        E-U33: rounding up puts one pick in each of $K$ segments; rounding down does not.
    """
    errors.whole("tokens", tokens)
    errors.whole("picks", picks, 0, tokens)
    return torch.tensor([-(-k * tokens // picks) for k in range(picks)], dtype=torch.int64)


def random_order(tokens: int, seed: int) -> Int[Tensor, "tokens"]:
    r"""Shuffle the positions: the fixed random baseline.

    $$o \sim \mathrm{Uniform}(\mathfrak{S}_n)$$

    Args:
        tokens: length $n$ of the content region, at least 0.
        seed: seed of the generator, in [0, 2³² - 1].

    Returns:
        A permutation of $0, \dots, n - 1$, the same on every machine and in every version of
        NumPy, whose legacy generator is frozen.

    Raises:
        TypeError: `tokens` or `seed` is not an integer.
        ValueError: `tokens` is negative, or `seed` is not in range.

    Source:
        HubKV-I.

    Reading:
        E-U33: the paper fixes an order and does not give it.
    """
    errors.whole("tokens", tokens)
    errors.whole("seed", seed, 0, 2**32 - 1)
    order = np.random.RandomState(seed).permutation(tokens)
    return torch.from_numpy(order.astype(np.int64))
