"""Expander masks: biregular, simple, connected, under the Ramanujan bound."""

from fractions import Fraction
from functools import lru_cache
from math import ceil, floor, gcd
from typing import NamedTuple, NoReturn

import torch
from jaxtyping import Bool
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import multiple_of
from reference.contract.types import Positive, Ratio, Seed, Whole
from reference.hex.presets import HexConfig
from reference.hex.random_biregular import (
    biadjacency,
    connecting_swaps,
    double_edge_swaps,
    half_edge_pairing,
)
from reference.hex.spectrum import is_ramanujan

DRAWS = 1000


class Degrees(NamedTuple):
    """Neighbours of each token and of each channel."""

    token: int
    channel: int


class Expander(NamedTuple):
    """An accepted mask, and how many graphs were drawn to find it."""

    mask: Bool[Tensor, "tokens channels"]
    draws: int


def biregular_degrees(
    tokens: Positive, channels: Positive, density: Ratio, near: bool = False
) -> Degrees:
    r"""Return the degrees of a biregular mask that keeps a given share of the entries.

    $$d_1 = \rho\, d, \qquad d_2 = \rho\, n, \qquad n\, d_1 = d\, d_2$$

    Args:
        tokens: number of tokens $n$.
        channels: number of channels $d$.
        density: share $\rho$ of the entries kept, taken as its decimal text.
        near: accept densities that no biregular graph has: the token degree is then $\rho d$
            rounded half to even, and channels share the edges as evenly as they can.

    Returns:
        The degrees. With `near`, `channel` is the smaller of the two channel degrees.

    Raises:
        ValueError: without `near`, a degree is not whole or below 3. The message names the
            nearest feasible densities.

    Source:
        HEX-3.2a, HEX-3.2d, HEX-Def2, HEX-Near. As printed (A.2); that a share gives the degrees is
        read off Table 5, and `near` is ours (E-H2).

    Reading:
        E-H2, E-H26: 4.6875 % and 7.8125 % of 96 tokens are infeasible, though the paper uses
        them; degrees below 3 are outside its definition.
    """
    share = Fraction(str(density))
    if near:
        token_degree = round(share * channels)
        return Degrees(token_degree, tokens * token_degree // channels)
    # n d_1 = d d_2 holds for multiples of one part in gcd(n, d) alone
    parts = gcd(tokens, channels)
    step = round(share * parts)
    degrees = Degrees(step * channels // parts, step * tokens // parts)
    feasible(tokens, channels, density, degrees)
    return degrees


def feasible(tokens: int, channels: int, density: float, degrees: Degrees) -> None:
    """Refuse a density whose degrees are not whole or below 3; name the nearest to be had."""
    # as floats: two thirds are feasible though no decimal text is two thirds
    whole = degrees.token / channels == density
    if whole and min(degrees) >= 3:
        return
    why = (
        "give degrees of at least 3, as the definition of a Ramanujan graph asks"
        if whole
        else "give whole degrees"
    )
    parts, share = gcd(tokens, channels), Fraction(str(density))
    least = ceil(Fraction(3 * parts, min(tokens, channels)))
    steps = (floor(share * parts), ceil(share * parts))
    found = sorted({min(max(step, least), parts) / parts for step in steps})
    nearest = " and ".join(str(value) for value in found if least <= parts) or "none"
    raise ValueError(
        f"density must {why} at {tokens} tokens and {channels} channels "
        f"(nearest feasible: {nearest}; near=True accepts any), got {density}"
    )


def biregular(tokens: int, channels: int, token_degree: int, near: bool) -> None:
    """Refuse degrees that no biregular Ramanujan graph has, or, if `near`, no graph at all."""
    least = 0 if near else 3
    if not least <= token_degree <= channels:
        raise ValueError(f"token_degree must be in [{least}, {channels}], got {token_degree}")
    channel_degree, rest = divmod(tokens * token_degree, channels)
    if not near and (rest or channel_degree < 3):
        raise ValueError(
            f"token_degree must give {channels} channels one whole degree of at least 3 "
            f"from {tokens} tokens, got {token_degree}"
        )


@requires(biregular)
def random_expander(
    tokens: Positive,
    channels: Positive,
    token_degree: Whole,
    seed: Seed = 0,
    near: bool = False,  # noqa: ARG001 the contract reads it
) -> Expander:
    r"""Draw biregular graphs until one is Ramanujan.

    $$\sigma_2(B) \le \sqrt{d_1 - 1} + \sqrt{d_2 - 1}$$

    Args:
        tokens: number of tokens $n$.
        channels: number of channels $d$.
        token_degree: channels $d_1$ of each token, in [0, channels].
        seed: names the random stream.
        near: let channel degrees differ by one or be below 3. Such a graph is no Ramanujan
            graph, and the first one drawn is taken: it hangs together where its degrees allow.

    Returns:
        The first mask that passes, and the number of graphs drawn. The same seed gives the same
        mask on every machine and version.

    Raises:
        RuntimeError: a thousand draws did not find one.

    Source:
        HEX-A.2a, HEX-A.3a, HEX-Near. As printed (§3.2, Def. 2); $\sigma_2(B)$ is the paper's
        $\lambda_2$ (E-H4).

    Reading:
        E-H2, E-H3, E-H4: simple and connected after swaps, then filtered. E-H72: above half
        density the entries that are left out are drawn.
    """
    channel_degree, uneven = divmod(tokens * token_degree, channels)
    certified = not uneven and min(token_degree, channel_degree) >= 3
    for draw in range(DRAWS):
        mask = _simple_graph(tokens, channels, token_degree, seed, draw)
        if not certified or is_ramanujan(mask):
            return Expander(mask, draw + 1)
    none_found(tokens, channels, token_degree)


def none_found(tokens: int, channels: int, token_degree: int) -> NoReturn:
    """Give up drawing."""
    raise RuntimeError(
        f"no expander among {DRAWS} draws of {tokens} tokens and {channels} channels "
        f"at token_degree {token_degree}"
    )


def _simple_graph(tokens: int, channels: int, token_degree: int, seed: int, draw: int) -> Tensor:
    # the entries left out, where swaps would take long to find a way (E-H72)
    dense = 2 * token_degree > channels
    drawn = channels - token_degree if dense else token_degree
    pairs = half_edge_pairing(tokens, channels, drawn, seed, draw)
    pairs = double_edge_swaps(pairs, channels, seed, draw)
    if dense:
        # any two tokens share a channel
        return ~biadjacency(pairs, channels)
    return biadjacency(connecting_swaps(pairs, channels, seed, draw), channels)


def tiled(tokens: int, tile: bool, block: int) -> None:
    """Refuse tokens that are no whole number of tiles."""
    multiple_of("tokens", tokens, "block", block if tile else 1)


@requires(tiled)
def expander_mask(
    tokens: Positive,
    channels: Positive,
    density: Ratio,
    seed: Seed = 0,
    near: bool = False,
    tile: bool = False,
    block: Positive = 96,
) -> Bool[Tensor, "tokens channels"]:
    r"""Return the static mask of HEX: a random biregular Ramanujan graph.

    $$\mathrm{Mask}_{\exp} \in \{0, 1\}^{n \times d}, \qquad
      \sum_c \mathrm{Mask}_{t,c} = \rho d, \qquad \sum_t \mathrm{Mask}_{t,c} = \rho n$$

    Args:
        tokens: number of tokens $n$.
        channels: number of channels $d$, all heads together.
        density: share $\rho$ of the entries kept, taken as its decimal text.
        seed: names the random stream.
        near: accept densities that no biregular graph has, see `biregular_degrees`; such a mask
            is connected, not certified. A density that one has gives the mask it gives without.
        tile: repeat the mask of one block. A tiled mask is no Ramanujan graph.
        block: tokens $n_b$ of a tile; not read without `tile`.

    Returns:
        The mask, the same for one seed on every machine and version.

    Raises:
        ValueError: no biregular graph has the density, see `biregular_degrees`.
        RuntimeError: a thousand draws found no Ramanujan graph.

    Source:
        HEX-3.2a, HEX-A.2a, HEX-Near. In words (§3.2): "each token node in $V$ connects to exactly
        $d_1$ channels, and each channel node in $U$ connects to exactly $d_2$ tokens". `near` and
        `tile` are ours (E-H2, E-H5).

    Reading:
        E-H2, E-H5, E-H6: one graph for a prompt, whatever its length; one mask for keys and
        values and all layers.
    """
    if tile:
        return expander_mask(block, channels, density, seed, near).repeat(tokens // block, 1)
    degrees = biregular_degrees(tokens, channels, density, near)
    return random_expander(tokens, channels, degrees.token, seed, near).mask


def static_mask(config: HexConfig, tokens: int, channels: int) -> Tensor:
    """Return the expander mask of a span, or none, or all of it."""
    if config.density in (0, 1):
        return torch.full((tokens, channels), config.density == 1)
    how = config.seed, config.near, config.tile, config.block
    return _recent_masks(tokens, channels, config.density, *how)


_recent_masks = lru_cache(maxsize=8)(expander_mask)
