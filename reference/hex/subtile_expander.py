"""Expander masks that a kernel computes in its registers: permutations of each head's channels."""

from typing import Annotated, NamedTuple

import numpy as np
import torch
from annotated_types import Ge, Interval, Predicate
from jaxtyping import Bool, Int64
from torch import Tensor

from reference.contract.enforce import ends, may_read_values, requires
from reference.contract.preconditions import divides, multiple_of, permuting
from reference.contract.types import Positive, Seed, Whole
from reference.hex.expander import DRAWS
from reference.hex.spectrum import is_ramanujan


def a_power_of_two(value: int) -> bool:
    """Whether a number has one binary digit that is not 0."""
    return value & (value - 1) == 0


Width = Annotated[int, Interval(ge=2, le=256), Predicate(a_power_of_two)]
Subtile = Annotated[int, Ge(1), Predicate(a_power_of_two)]


def fits_subtile(tokens: int, width: int, subtile: int) -> None:
    """Refuse a sub-tile above the channels of a head, or one that does not divide the tokens."""
    if subtile > width:
        raise ValueError(f"subtile must be in [1, {width}], got {subtile}")
    multiple_of("tokens", tokens, "subtile", subtile)


def shared(width: int, subtile: int) -> None:
    """Refuse a sub-tile that does not share a head's channels evenly."""
    divides("subtile", subtile, "width", width)


def degrees(tokens: int, heads: int, width: int, subtile: int) -> None:
    """Refuse fewer than three tokens a channel, or three channels a token."""
    if tokens < 3 * subtile:
        raise ValueError(f"tokens must be >= {3 * subtile}, got {tokens}")
    if heads * width < 3 * subtile:
        raise ValueError(f"heads must be >= {-(-3 * subtile // width)}, got {heads}")


def four_bytes(codes: Tensor) -> None:
    """Refuse what are not four bytes, the first and the third odd."""
    if not may_read_values(codes):
        return
    low, high = ends(codes)
    if low < 0 or high >= 2**32 or int((codes & 0x10001).amin()) != 0x10001:
        bad = (codes < 0) | (codes >= 2**32) | (codes & 0x10001 != 0x10001)
        raise ValueError(
            "codes must be in [0, 2**32) with odd first and third bytes, "
            f"got {codes[bad][0].item()}"
        )


class SubtileExpander(NamedTuple):
    """The codes of an accepted mask, and how many masks were drawn to find it."""

    codes: Int64[Tensor, "heads subtiles"]
    draws: int


@requires(fits_subtile)
def subtile_codes(
    tokens: Whole,
    heads: Whole,
    seed: Seed = 0,
    draw: Seed = 0,
    width: Width = 128,
    subtile: Subtile = 32,
) -> Int64[Tensor, "heads subtiles"]:
    """Draw four bytes for every head of every sub-tile of tokens.

    Args:
        tokens: number of tokens, a multiple of `subtile`.
        heads: number of key-value heads.
        seed: names the random stream.
        draw: number of this draw within the stream.
        width: channels of a head, a power of two in [2, 256].
        subtile: tokens of a sub-tile, a power of two in [1, width].

    Returns:
        The codes of `subtile_permutations`, in [0, 2³²).

    Source:
        HEX-Subtile.
    """
    generator = np.random.RandomState([seed, draw, 2])
    codes = np.zeros((heads, tokens // subtile), np.int64)
    for index in np.ndindex(codes.shape):
        multiplier, offset, second, last = generator.randint(0, width, 4, dtype=np.int64).tolist()
        codes[index] = (multiplier | 1) + (offset << 8) + ((second | 1) << 16) + (last << 24)
    return torch.from_numpy(codes)


@requires(four_bytes)
def subtile_permutations(
    codes: Int64[Tensor, "*heads"], width: Width = 128
) -> Int64[Tensor, "*heads width"]:
    r"""Unfold each four-byte code into a permutation of a head's channels.

    $$x \;\mapsto\; a_2\,(y \oplus \lfloor y / 2^s \rfloor) + b_2 \bmod w,
      \qquad y = a x + b \bmod w$$

    Args:
        codes: bytes $a, b, a_2, b_2$ from the lowest up; $a$ and $a_2$ odd.
        width: channels $w$ of a head, a power of two in [2, 256]; $s$ is half its binary
            logarithm, rounded up: 4 at 128.

    Returns:
        The images of $0, \dots, w - 1$.

    Source:
        HEX-Subtile. Ours: permutations that a kernel computes from four bytes.
    """
    shift = width.bit_length() // 2
    images = codes.new_zeros(*codes.shape, width)
    for x in range(width):
        y = ((codes & 255) * x + (codes >> 8 & 255)) % width
        images[..., x] = ((codes >> 16 & 255) * (y ^ y >> shift) + (codes >> 24)) % width
    return images


@requires(permuting, shared)
def subtile_mask(
    permutations: Int64[Tensor, "heads subtiles width"], subtile: Positive = 32
) -> Bool[Tensor, "tokens channels"]:
    r"""Give each token of a sub-tile its share of each head's permuted channels.

    $$\mathrm{Mask}_{t,\; hw + \pi_{h,\lfloor t/\tau \rfloor}(m (t \bmod \tau) + i)} = 1,
      \qquad 0 \le i < m = w / \tau$$

    Args:
        permutations: one permutation $\pi$ of the $w$ channels for each head and sub-tile.
        subtile: tokens $\tau$ of a sub-tile, a divisor of the width.

    Returns:
        The mask: a token keeps $w / \tau$ channels of every head, and every channel keeps one
        token of every sub-tile.

    Source:
        HEX-Subtile. Ours: masks that a kernel computes, with the degrees of the paper's masks.
    """
    heads, subtiles, width = permutations.shape
    share = width // subtile
    mask = torch.zeros(
        subtiles * subtile, heads * width, dtype=torch.bool, device=permutations.device
    )
    for head in range(heads):
        for token in range(len(mask)):
            first = share * (token % subtile)
            owned = permutations[head, token // subtile, first : first + share]
            mask[token, head * width + owned] = True
    return mask


@requires(fits_subtile, degrees)
def subtile_expander(
    tokens: Positive, heads: Positive, seed: Seed = 0, width: Width = 128, subtile: Subtile = 32
) -> SubtileExpander:
    """Draw codes until their mask is a Ramanujan graph.

    Args:
        tokens: number of tokens, a multiple of `subtile`, at least three times as many.
        heads: number of key-value heads.
        seed: names the random stream.
        width: channels of a head, a power of two in [2, 256].
        subtile: tokens of a sub-tile, a power of two in [1, width].

    Returns:
        The codes, four bytes for each head and sub-tile, and the number of masks drawn.

    Raises:
        RuntimeError: a thousand draws did not find one.

    Source:
        HEX-Subtile.
    """
    for draw in range(DRAWS):
        codes = subtile_codes(tokens, heads, seed, draw, width, subtile)
        if is_ramanujan(subtile_mask(subtile_permutations(codes, width), subtile)):
            return SubtileExpander(codes, draw + 1)
    raise RuntimeError(f"no expander among {DRAWS} draws of {tokens} tokens and {heads} heads")
