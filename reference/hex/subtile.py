"""Expander masks that a kernel computes in its registers: permutations of each head's channels."""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int64
from torch import Tensor

from reference import errors
from reference.hex import errors as refuse
from reference.hex.spectrum import is_ramanujan


class SubtileExpander(NamedTuple):
    """The codes of an accepted mask, and how many masks were drawn to find it."""

    codes: Int64[Tensor, "heads subtiles"]
    draws: int


def subtile_codes(
    tokens: int,
    heads: int,
    seed: int = 0,
    draw: int = 0,
    width: int = 128,
    subtile: int = 32,
) -> Int64[Tensor, "heads subtiles"]:
    """Draw four bytes for every head of every sub-tile of tokens.

    Args:
        tokens: number of tokens, a multiple of `subtile`, at least 0.
        heads: number of key-value heads, at least 0.
        seed: names the random stream, in [0, 2³² − 1].
        draw: number of this draw within the stream, in the same range.
        width: channels of a head, a power of two in [2, 256].
        subtile: tokens of a sub-tile, a power of two in [1, width].

    Returns:
        The codes of `subtile_permutations`, in [0, 2³²).

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is outside its range.

    Source:
        HEX-Subtile.
    """
    errors.whole("tokens", tokens)
    errors.whole("heads", heads)
    errors.whole("seed", seed, 0, refuse.SEEDS)
    errors.whole("draw", draw, 0, refuse.SEEDS)
    refuse.subtiles(width, subtile)
    refuse.multiple("tokens", tokens, "subtile", subtile)
    generator = np.random.RandomState([seed, draw, 2])
    codes = np.zeros((heads, tokens // subtile), np.int64)
    for place in np.ndindex(codes.shape):
        multiplier, offset, second, last = generator.randint(0, width, 4, dtype=np.int64).tolist()
        codes[place] = (multiplier | 1) + (offset << 8) + ((second | 1) << 16) + (last << 24)
    return torch.from_numpy(codes)


def subtile_permutations(
    codes: Int64[Tensor, "*heads"], width: int = 128
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

    Raises:
        TypeError: `codes` is not int64, or `width` not an integer.
        ValueError: `width` is no power of two in its range, a code is outside [0, 2³²), or one
            of its multipliers is even.

    Source:
        HEX-Subtile.
    """
    refuse.codes("codes", codes)
    refuse.subtiles(width, 1)
    shift = width.bit_length() // 2
    images = codes.new_zeros(*codes.shape, width)
    for x in range(width):
        y = ((codes & 255) * x + (codes >> 8 & 255)) % width
        images[..., x] = ((codes >> 16 & 255) * (y ^ y >> shift) + (codes >> 24)) % width
    return images


def subtile_mask(
    permutations: Int64[Tensor, "heads subtiles width"], subtile: int = 32
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

    Raises:
        TypeError: `permutations` is not int64, or `subtile` not an integer.
        ValueError: `permutations` has not three axes or is no permutation along the last one, or
            `subtile` does not divide the width.

    Source:
        HEX-Subtile.
    """
    refuse.permutations("permutations", permutations, 3)
    errors.whole("subtile", subtile, 1)
    heads, subtiles, width = permutations.shape
    refuse.divides("subtile", subtile, "width", width)
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


def subtile_expander(
    tokens: int, heads: int, seed: int = 0, width: int = 128, subtile: int = 32
) -> SubtileExpander:
    """Draw codes until their mask is a Ramanujan graph.

    Args:
        tokens: number of tokens, a multiple of `subtile`, at least three times as many.
        heads: number of key-value heads, at least 1.
        seed: names the random stream, in [0, 2³² − 1].
        width: channels of a head, a power of two in [2, 256].
        subtile: tokens of a sub-tile, a power of two in [1, width].

    Returns:
        The codes, four bytes for each head and sub-tile, and the number of masks drawn.

    Raises:
        TypeError: an argument is not an integer.
        ValueError: an argument is outside its range, or a token would keep fewer than three
            channels.
        RuntimeError: a thousand draws did not find one.

    Source:
        HEX-Subtile.
    """
    errors.whole("tokens", tokens, 3 * subtile if isinstance(subtile, int) else 0)
    errors.whole("heads", heads, 1)
    errors.whole("seed", seed, 0, refuse.SEEDS)
    refuse.subtiles(width, subtile)
    refuse.multiple("tokens", tokens, "subtile", subtile)
    errors.whole("heads", heads, -(-3 * subtile // width))
    for draw in range(refuse.DRAWS):
        codes = subtile_codes(tokens, heads, seed, draw, width, subtile)
        if is_ramanujan(subtile_mask(subtile_permutations(codes, width), subtile)):
            return SubtileExpander(codes, draw + 1)
    raise RuntimeError(
        f"no expander among {refuse.DRAWS} draws of {tokens} tokens and {heads} heads"
    )
