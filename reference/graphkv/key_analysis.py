"""What the paper looks at: how alike keys are, where they lie, how much memory they take."""

from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.types import Finite, Positive, Whole
from reference.graphkv.graph import edges


def cosine_matrix(
    keys: Finite[Tensor, "*heads tokens width"],
) -> Float[Tensor, "*heads tokens tokens"]:
    r"""Cosine similarity of every token to every token.

    $$e_{ij} = \frac{\langle k_i, k_j \rangle}{\lVert k_i \rVert\, \lVert k_j \rVert}$$

    Args:
        keys: key vectors $k$.

    Returns:
        The similarities $e$ in [-1, 1], float32 (float64 for float64 input); symmetric, 1 on the
        diagonal up to rounding, 0 at a vector of length 0.

    Source:
        GraphKV-1, GraphKV-Obs. As printed (Eq. 1).
    """
    every = torch.arange(keys.shape[-2], device=keys.device)
    return edges(keys, every.expand(keys.shape[:-1]))


class CosineDistribution(NamedTuple):
    """How the similarities of all pairs of different tokens are distributed."""

    mean: Float[Tensor, "*heads"]
    variance: Float[Tensor, "*heads"]  # divided by the number of pairs
    histogram: Int64[Tensor, "*heads bins"]  # pairs by similarity, from -1 to 1


def cosine_distribution(
    keys: Finite[Tensor, "*heads tokens width"], bins: Positive = 50
) -> CosineDistribution:
    r"""Mean, variance and histogram of the cosine similarity over all pairs of tokens.

    $$\bar e = \frac{2}{n(n-1)} \sum_{i < j} e_{ij}$$

    Args:
        keys: key vectors $k$ of the $n$ tokens looked at.
        bins: bins of equal width over [-1, 1]; a similarity of 1 is in the last.

    Returns:
        The distribution: mean and variance in float32 (float64 for float64 input), both 0 where
        there is no pair; the counts of the histogram sum to $n(n-1)/2$.

    Source:
        GraphKV-Obs. In words (§3): "high mean and low variance in cosine similarity". Which pairs
        count is ours (E-G21).

    Reading:
        E-G21: pairs of different tokens, each once; variance over the pairs.
    """
    similarity = cosine_matrix(keys)
    first, second = torch.triu_indices(*similarity.shape[-2:], offset=1, device=keys.device)
    pairs = similarity[..., first, second]
    number = max(1, len(first))
    mean = pairs.sum(-1) / number
    variance = (pairs - mean[..., None]).square().sum(-1) / number
    bin_of_pair = ((pairs + 1) * (bins / 2)).long().clamp(max=bins - 1)
    histogram = torch.stack([(bin_of_pair == bin).sum(-1) for bin in range(bins)], -1)
    return CosineDistribution(mean, variance, histogram)


def within_width(components: int, width: int) -> None:
    """Refuse more components than keys are wide."""
    if components > width:
        raise ValueError(f"components must be in [1, {width}], got {components}")


@requires(within_width)
def principal_components(
    keys: Finite[Tensor, "*heads tokens width"], components: Positive = 2
) -> Float[Tensor, "*heads tokens components"]:
    r"""Project the centred keys on the axes along which they vary most.

    $$P = (K - \bar K)\,V, \qquad (K - \bar K)^{\top}(K - \bar K) = V \Lambda V^{\top}, \qquad
      \lambda_1 \ge \lambda_2 \ge \dots$$

    Args:
        keys: key vectors $K$.
        components: number of axes, in [1, width].

    Returns:
        The projections $P$ in float32 (float64 for float64 input), most variance first. An axis
        points so that its largest coordinate, the first of equals, is positive.

    Source:
        GraphKV-PCA. In words (§6.3): "key vector distributions projected onto PCA components".
        Centring and signs are ours (E-G22).

    Reading:
        E-G22: keys are centred, not scaled; the sign is ours. Axes are found in float64 and
        projections rounded once.
    """
    wide = keys.double()
    projections = wide.new_zeros(*keys.shape[:-1], components)
    if not keys.numel():
        return projections.to(torch.promote_types(keys.dtype, torch.float32))
    for head in product(*map(range, keys.shape[:-2])):
        centred = wide[head] - wide[head].mean(0)
        axes = torch.linalg.eigh(centred.T @ centred).eigenvectors.flip(-1)
        for c in range(components):
            axis = axes[:, c]
            sign = axis[axis.abs().argmax()].sign()
            projections[(*head, slice(None), c)] = (centred * (sign * axis)).sum(-1)
    return projections.to(torch.promote_types(keys.dtype, torch.float32))


def kv_bytes(
    tokens: Whole,
    layers: Positive = 32,
    heads: Positive = 8,
    width: Positive = 128,
    element_bytes: Positive = 2,
) -> int:
    r"""Bytes that the keys and values of a context take.

    $$2 \cdot n \cdot L \cdot H \cdot d_h \cdot b$$

    Args:
        tokens: length $n$ of the context.
        layers: number of layers $L$.
        heads: number of key-value heads $H$.
        width: width $d_h$ of a head.
        element_bytes: bytes $b$ of a number: 2 for bfloat16.

    Returns:
        The bytes: 131 072 a token with the defaults.

    Source:
        GraphKV-Tab5. In words (Table 5): "for a 7B-parameter model with 32 attention heads and
        128-dimensional key/value vectors". The formula is ours; the table counts 8 heads and 1 000
        tokens a K (E-G16, E-G18).

    Reading:
        E-G16, E-G18: the table counts 8 heads, not the 32 of its caption, and 1 000 tokens a K.
    """
    return 2 * tokens * layers * heads * width * element_bytes
