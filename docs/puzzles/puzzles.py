"""Sixteen puzzles: write HubKV, GraphKV and HEX, function by function.

Replace `raise NotImplementedError` by your code, then let the suite mark it:

    python -m spec_tests puzzles

The last axis is the tokens, and any number of axes may stand before it: heads, layers, a batch.
Return new tensors, and leave the arguments as they are. The examples are those of a session
after `from puzzles import *` and `import torch`. Hints are in docs/puzzles/hints.md.
"""

import torch
from torch import Tensor

from reference import HexCache, Quantised, kept_count
from reference.hex.cache import (
    add_mass,
    add_tokens,
    buffer_space,
    compress_oldest_block,
    mass_drawn,
    recompress_as_one_span,
)

exercises = (
    *("hub_mask", "discount", "selectivity", "head_weights", "gate", "retain"),
    *("cosine_matrix", "neighbours", "decay"),
    *("half_edge_pairing", "biadjacency", "is_ramanujan"),
    *("attention_mass", "quantise", "pack_bits", "hex_append"),
)
"""The order of the puzzles, which the suite follows."""
dtypes = (torch.float32, torch.float64)
"""Half precision is no part of the puzzles."""


# HubKV: a token near a stronger one says little that is new


def hub_mask(scores: Tensor, radius: int = 2, protected: Tensor | None = None) -> Tensor:
    """Mark each token that holds the maximum of its window; it is called a hub.

    M_i = 𝕀(i = arg max_{j ∈ 𝒲_i} s_j),  𝒲_i = [i − k, i + k]

    The radius k is a half-width, and windows end where the row ends. Of equal scores the first is
    the maximum. A protected token is no hub, and hides no other token.
    Walk: docs/hubkv/walk.md#refine-hubs-and-the-discount

    >>> hub_mask(torch.tensor([1.0, 3.0, 2.0, 2.0, 5.0]), radius=1).tolist()
    [False, True, False, False, True]
    >>> aside = torch.tensor([True, False, False])
    >>> hub_mask(torch.tensor([4.0, 3.0, 3.0]), protected=aside).tolist()
    [False, True, False]
    """
    raise NotImplementedError


def discount(scores: Tensor, hubs: Tensor, gamma: float = 0.5) -> Tensor:
    """Multiply the score of every token that is not a hub by gamma.

    s̃_i = M_i s_i + (1 − M_i) γ s_i

    Walk: docs/hubkv/walk.md#refine-hubs-and-the-discount

    >>> discount(torch.tensor([1.0, 3.0, 2.0]), torch.tensor([False, True, False])).tolist()
    [0.5, 3.0, 1.0]
    >>> discount(torch.tensor([4.0, 8.0]), torch.tensor([True, False]), gamma=0.25).tolist()
    [4.0, 2.0]
    """
    raise NotImplementedError


def selectivity(scores: Tensor, protected: Tensor | None = None, epsilon: float = 1e-6) -> Tensor:
    """Return how unevenly each head spreads its scores: deviation over mean.

    c_{ℓ, h} = (σ_{ℓ, h})/(μ_{ℓ, h} + ϵ)

    The deviation σ divides by the number of tokens, and protected tokens count nowhere. A head
    without other tokens, or whose scores are equal, has selectivity 0, exactly: equal scores
    deviate a little from a rounded mean, so subtract the least score before you take σ.
    Walk: docs/hubkv/walk.md#refine-calibrate-the-heads

    >>> selectivity(torch.tensor([[1.0, 3.0], [2.0, 2.0]]), epsilon=0.0).tolist()
    [0.5, 0.0]
    >>> aside = torch.tensor([True, False, False])
    >>> selectivity(torch.tensor([9.0, 1.0, 3.0]), aside, epsilon=0.0).tolist()
    0.5
    """
    raise NotImplementedError


def head_weights(
    selectivity: Tensor, tau: float = 0.5, minimum: float = 0.8, maximum: float = 1.2
) -> Tensor:
    """Weigh the heads of a layer, the last axis, by selectivity over its mean, within bounds.

    β_{ℓ, h} = clip(((c_{ℓ, h})/(c̄_ℓ))^τ, β_{min}, β_{max})

    Where the mean c̄ of a layer is 0, the quotient is 1.
    Walk: docs/hubkv/walk.md#refine-calibrate-the-heads

    >>> head_weights(torch.tensor([1.0, 3.0]), tau=1.0, minimum=0.1, maximum=9.0).tolist()
    [0.5, 1.5]
    >>> head_weights(torch.tensor([0.0, 0.0])).tolist()
    [1.0, 1.0]
    """
    raise NotImplementedError


def gate(scores: Tensor, corrected: Tensor, ratio: float, power: float = 2.0) -> Tensor:
    """Mix raw and corrected scores: the more is removed (ratio r), the more counts the correction.

    λ = r^p,  z_i = (1 − λ) s_i + λ u_i

    Walk: docs/hubkv/walk.md#refine-the-gate

    >>> gate(torch.tensor([4.0, 8.0]), torch.tensor([0.0, 16.0]), ratio=0.5).tolist()
    [3.0, 10.0]
    >>> gate(torch.tensor([4.0]), torch.tensor([0.0]), ratio=0.5, power=1.0).tolist()
    [2.0]
    """
    raise NotImplementedError


def retain(
    scores: Tensor,
    protected: Tensor | None = None,
    *,
    keep: int | Tensor | None = None,
    ratio: float | None = None,
    scope: str = "head",
) -> Tensor:
    """Keep exactly B entries of each pool: the protected ones, then those of the best scores.

    S^* = arg max_{S ⊇ P, |S| = B} ∑_{i ∈ S} s_i

    Scores are laid out [layers, …, heads, tokens]. A pool is the tokens of a head, or heads and
    tokens of a layer, or of a model: layers, heads and tokens, but not the axes between, which are
    a batch. The budget B is `keep`, or a tensor of one number a pool, or `kept_count(N, ratio)` of
    N entries. Of equal scores the first in order of layer, head and token is kept, as a sort with
    `argsort(dim=-1, descending=True, stable=True)` has it. A score of −∞ is the worst, and can be
    kept.
    Walk: docs/hubkv/walk.md#retain

    >>> retain(torch.tensor([3.0, 1.0, 3.0, 2.0]), keep=1).tolist()
    [True, False, False, False]
    >>> retain(torch.tensor([[1.0, 2.0], [8.0, 9.0]]), ratio=0.5, scope="layer").tolist()
    [[False, False], [True, True]]
    """
    raise NotImplementedError


# GraphKV: a token much like a strong one falls behind


def cosine_matrix(keys: Tensor) -> Tensor:
    """Return the cosine of each token's key to each token's key, in [-1, 1].

    e_{ij} = (⟨k_i, k_j⟩)/(‖k_i‖ ‖k_j‖)

    Keys are [..., tokens, width]. A key of zeros has cosine 0 to every key.
    Walk: docs/graphkv/walk.md#refine-the-graph

    >>> cosine_matrix(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    >>> cosine_matrix(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    raise NotImplementedError


def neighbours(
    weights: Tensor,
    sources: Tensor,
    count: int,
    protected: Tensor | None = None,
    spare_sources: bool = False,
) -> Tensor:
    """Mark, for each source, the m tokens (count) with its largest edges.

    N(o_i) = {o_j|e_{ij} ≥ e_{i(m)}, j ≠ i}

    Row i of the weights, [..., sources, tokens], are the edges of the token at position
    `sources[i]`. A source is no neighbour of itself, nor of any source with `spare_sources`;
    a protected token is nobody's. Of equal edges the first counts. Where there are fewer
    candidates than m, all are neighbours.
    Walk: docs/graphkv/walk.md#refine-the-graph

    >>> neighbours(torch.tensor([[1.0, 0.2, 0.9]]), torch.tensor([0]), count=1).tolist()
    [[False, False, True]]
    >>> neighbours(torch.tensor([[0.5, 1.0, 0.5]]), torch.tensor([1]), count=5).tolist()
    [[True, False, True]]
    """
    raise NotImplementedError


def decay(
    scores: Tensor,
    weights: Tensor,
    neighbours: Tensor,
    rounds: int = 1,
    strength: float = 1.0,
    rule: str = "product",
) -> Tensor:
    """Lower each score by its edges to the sources that it is a neighbour of, in rounds.

    s_j^{(t)} = s_j^{(t − 1)}∏_{o_i ∈ O_{source}, o_j ∈ N(o_i)}(1 − α e_{ij})

    Weights and neighbours are [..., sources, tokens], and α is the strength. This is the rule
    "product". By "sequential" the last source that reaches a token decides alone: s (1 − α e). By
    "sum" losses add: s (1 − ∑ α e). A score that no source reaches stays as it is.
    Walk: docs/graphkv/walk.md#refine-decay

    >>> scores, edges = torch.tensor([8.0, 8.0]), torch.tensor([[0.5, 0.5], [0.9, 0.25]])
    >>> reached = torch.tensor([[True, True], [False, True]])
    >>> decay(scores, edges, reached).tolist()
    [4.0, 3.0]
    >>> decay(scores, edges, reached, rule="sequential").tolist()
    [4.0, 6.0]
    """
    raise NotImplementedError


# HEX: a random graph says which entries stay exact, and a few bits are left of the others


def half_edge_pairing(
    tokens: int, channels: int, token_degree: int, seed: int = 0, draw: int = 0
) -> Tensor:
    """Give each token as many channels as its degree, at random; all channels equally often.

    π ∼ Uniform(S_{nd_1}),  half-edge e of the tokens  ⟷ half-edge π(e) of the channels

    The result is [tokens, token_degree] of int64. Write each channel as often as it is wanted, and
    shuffle; a channel may stand twice in a row. Where the numbers do not divide, some channels,
    drawn at random, occur once more than others. A pair of seed and draw always gives the same
    result; another pair gives another.
    Walk: docs/hex/walk.md#retain

    >>> half_edge_pairing(4, 2, 1).flatten().sort().values.tolist()
    [0, 0, 1, 1]
    >>> half_edge_pairing(8, 4, 3, seed=1).flatten().bincount().tolist()
    [6, 6, 6, 6]
    """
    raise NotImplementedError


def biadjacency(pairs: Tensor, channels: int) -> Tensor:
    """Write the channels of each token as a mask, tokens × channels.

    B_{t, c} = 𝕀((t, c) ∈ E)

    Walk: docs/hex/walk.md#retain

    >>> biadjacency(torch.tensor([[0, 2], [1, 1]]), channels=3).tolist()
    [[True, False, True], [False, True, False]]
    >>> biadjacency(torch.tensor([[1]]), channels=2).tolist()
    [[False, True]]
    """
    raise NotImplementedError


def is_ramanujan(mask: Tensor) -> bool:
    """Decide whether a mask is a Ramanujan graph: even degrees, and a small second singular value.

    |λ_i| ≤ √(d_1 − 1) + √(d_2 − 1),  i = 2, …, n − 1,  d_1, d_2 ≥ 3

    Every row must have the same number d₁ of marks, every column the same d₂, both at least 3, and
    the second largest singular value must not exceed the bound. A graph may lie on the bound
    itself, so let rounding exceed it by one part in 10¹².
    Walk: docs/hex/walk.md#retain

    >>> is_ramanujan(torch.ones(4, 4, dtype=torch.bool))
    True
    >>> is_ramanujan(torch.block_diag(torch.ones(4, 4), torch.ones(4, 4)) > 0)
    False
    """
    raise NotImplementedError


def attention_mass(
    queries: Tensor,
    keys: Tensor,
    span: int | None = None,
    causal: bool = True,
    normalize: bool = False,
    log_sum_exp: Tensor | None = None,
) -> Tensor:
    """Sum the attention that each token draws, over all heads and queries.

    s_t = ∑_{i = 1}^h ∑_{q = 1}^Q A_{i, t}^{(q)},  A_{i, t}^{(q)} = exp(ℓ_{i, t}^{(q)} − L_i^{(q)})

    Queries are [..., query heads, queries, width] and keys [..., key heads, tokens, width]:
    consecutive query heads share a key head. Logits ℓ are inner products over √width. If causal,
    the last query sits at the last token, and none sees a later token. L is the log-sum-exp of a
    query's logits, found here unless given. With `span` only that many last tokens are returned;
    with `normalize` each mass is divided by the number of queries that see the token, if any.
    Walk: docs/hex/walk.md#score

    >>> attention_mass(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1)).tolist()
    [1.5, 0.5]
    >>> attention_mass(torch.zeros(1, 2, 1), torch.zeros(1, 2, 1), normalize=True).tolist()
    [0.75, 0.5]
    """
    raise NotImplementedError


def quantise(
    x: Tensor, bits: int, kept: Tensor | None = None, scales: torch.dtype | None = None
) -> Quantised:
    """Code the members of each group, the last axis, on a grid from minimum to maximum.

    c_j = round((X_j − min_g X)/Δ_g),  Δ_g = (max_g X − min_g X)/(2^b − 1)

    The result is codes (uint8), steps Δ and minima. Kept entries have no part in minimum and
    maximum, and code 0; a group without others has step and minimum 0. A step of 0 gives codes 0.
    Steps and minima are stored in the precision `scales`, by default that of x, and codes are
    computed from them as stored. Halves round to even, and no code exceeds 2ᵇ − 1.
    Walk: docs/hex/walk.md#store-three-bits-for-the-rest

    >>> codes, step, minimum = quantise(torch.tensor([0.0, 1.0, 6.0]), bits=2)
    >>> codes.tolist(), step.item(), minimum.item()
    ([0, 0, 3], 2.0, 0.0)
    >>> kept = torch.tensor([False, False, False, True])
    >>> quantise(torch.tensor([0.0, 1.0, 3.0, 99.0]), bits=2, kept=kept).codes.tolist()
    [0, 1, 3, 0]
    """
    raise NotImplementedError


def pack_bits(codes: Tensor, bits: int) -> Tensor:
    """Write the codes of each row, the last axis, one after the other into words of 32 bits.

    w_k = ∑_{j = 0}^31 2^j β_{32k + j},  β_{bi + j} = ⌊c_i/(2^j)⌋ mod 2 (0 ≤ j < b)

    The lowest bit of a code comes first, and a word is filled from its lowest bit up; a code may
    lie across two words. Bits past the end are 0. The result is int32, so that bit 31 is the sign.
    Walk: docs/hex/walk.md#store-three-bits-for-the-rest

    >>> pack_bits(torch.tensor([1, 2, 3], dtype=torch.uint8), bits=2).tolist()
    [57]
    >>> pack_bits(torch.full((11,), 7, dtype=torch.uint8), bits=3).tolist()
    [-1, 1]
    """
    raise NotImplementedError


def hex_append(cache: HexCache, queries: Tensor, keys: Tensor, values: Tensor) -> HexCache:
    """Add decoded tokens to the buffer of a cache, and compress it whenever it is full.

    append: X̂_{1 : t} ∥ 𝒞(X_{t + 1 : t + n_b}),  full: 𝒞(X̂_{1 : t} ∥ X_{t + 1 : t + n_b})

    The steps are there, write the loop. Take no more tokens at a time than `buffer_space(cache)`:
    `add_tokens(cache, keys, values)`, then add to the mass what their queries draw,
    `add_mass(cache, mass_drawn(queries, cache))`. A buffer without space is compressed, by
    `compress_oldest_block(cache)` in the mode "append" and as long as the cache has fewer than
    `cache.config.period` blocks, else by `recompress_as_one_span(cache, cache.config.block)`.
    Walk: docs/hex/walk.md#the-stream

    >>> from reference import HexConfig, hex_prefill
    >>> x = torch.arange(6.0).reshape(1, 6, 1)
    >>> cache = hex_prefill(x, x, x, HexConfig(block=4, density=0))
    >>> len(cache.blocks), cache.residual_keys.flatten().tolist()
    (1, [4.0, 5.0])
    >>> cache = hex_append(cache, x[:, :3], x[:, :3], x[:, :3])
    >>> len(cache.blocks), cache.residual_keys.flatten().tolist()
    (2, [2.0])
    >>> hex_append(cache, x[:, :0], x[:, :0], x[:, :0]).residual_keys.flatten().tolist()
    [2.0]
    """
    raise NotImplementedError
