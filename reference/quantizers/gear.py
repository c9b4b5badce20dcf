"""GEAR: a span of keys or values as codes, exact outliers and a low-rank correction."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, Int32
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import has_heads_and_channels
from reference.contract.types import Bits, Finite, Ratio, Scales, Seed, Whole
from reference.hex.kcvt import (
    Quantised,
    code,
    dequantise,
    group_values,
    transposed,
    ungroup_values,
)
from reference.hex.packing import pack_bits, unpack_bits
from reference.precision import widen
from reference.quantizers.low_rank import low_rank
from reference.quantizers.outliers import outlier_mask, outliers_per_end

Side = Literal["channel", "token"]
"""What a row is: a channel over all tokens, for keys, or a token over all heads, for values."""


class GearBlock(NamedTuple):
    """What is stored of a span of keys, a row a channel, or of values, a row a token.

    Source:
        HEX-GEAR.
    """

    bits: Bits
    words: Int32[Tensor, "*rows words"]
    steps: Float[Tensor, "*rows"]
    minima: Float[Tensor, "*rows"]
    outliers: Float[Tensor, "*rows outliers"]
    places: Int[Tensor, "*rows outliers"]
    left: Float[Tensor, "*batch kv_heads tokens rank"]
    right: Float[Tensor, "*batch kv_heads width rank"]


def x_headed(x: Tensor) -> None:
    """Refuse a span without a head or without a channel."""
    has_heads_and_channels("x", x)


@requires(x_headed)
def gear_compress(
    x: Finite[Tensor, "*batch kv_heads tokens width"],
    by: Side = "channel",
    bits: Bits = 4,
    outliers: Ratio = 0.02,
    rank: Whole = 4,
    fill: bool = True,
    seed: Seed = 0,
    scales: Scales = None,
) -> GearBlock:
    r"""Compress a span: codes, the outliers as they are, and the rest of the error at low rank.

    $$X \approx Q + S + L, \qquad R = X - Q - S, \qquad L = A B^\top$$

    Args:
        x: keys or values $X$.
        by: what a row of outliers and of the grid is: `"channel"`, over all tokens, for keys;
            `"token"`, over all heads, for values.
        bits: code width $b$.
        outliers: share $s$ of each row that $S$ stores exactly.
        rank: rank $r$ of $L$, one matrix a head.
        fill: give the places of outliers the mean of their row before quantising; otherwise they
            have no part in the grid.
        seed: names the block that the power iteration starts from.
        scales: precision of the stored steps and minima, as in `quantise`.

    Returns:
        The stored parts: codes of at most $2^b - 1$, 0 under outliers; outliers by position; the
        factors of $L$ in the type of `x`. Nothing in them shares memory with the input.

    Raises:
        ValueError: a step or minimum overflows the precision it is stored in.

    Source:
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR and does not define it (E-H39,
        E-H40, E-H41, E-H71).

    Reading:
        E-H39, E-H40, E-H41, E-H71: the grid has $2^b$ levels with outliers as without; $\lfloor
        sn/2 \rfloor$ outliers at each end of a row of $n$, a channel's too; a row's mean may lie
        outside the rest and stretch its grid.
    """
    return compress_side("x", x, by, bits, outliers, rank, fill, seed, scales)


def gear_reconstruct(
    block: GearBlock, exact_outliers: bool = False
) -> Float[Tensor, "*batch kv_heads tokens width"]:
    r"""Restore keys or values from what `gear_compress` stored.

    $$\widehat X = Q + S + L$$

    Args:
        block: the stored parts.
        exact_outliers: leave $L$ out where $S$ is.

    Returns:
        The keys or values $\widehat X$, in the type of the stored factors.

    Source:
        HEX-GEAR. From elsewhere: Kang et al.; the paper names GEAR and does not define it (E-H42).

    Reading:
        E-H42: the sum moves the outliers too, by $L$.
    """
    by: Side = "channel" if block.words.ndim == block.left.ndim else "token"
    (kv_heads, tokens), width = block.left.shape[-3:-1], block.right.shape[-2]
    members = tokens if by == "channel" else kv_heads * width
    codes = unpack_bits(block.words, block.bits, members)
    rows = dequantise(codes, block.steps, block.minima).to(widen(block.left).dtype)
    places, exact = block.places.long(), widen(block.outliers)
    rows = rows.scatter(-1, places, exact)
    rows = rows + to_rows(widen(block.left) @ widen(block.right).mT, by)
    if exact_outliers:
        rows = rows.scatter(-1, places, exact)
    return from_rows(rows, by, width).to(block.left.dtype)


def compress_side(
    name: str,
    x: Tensor,
    by: Side,
    bits: int,
    outliers: float,
    rank: int,
    fill: bool,
    seed: int,
    scales: Scales,
) -> GearBlock:
    """Compress keys or values; errors call them `name`."""
    rows = to_rows(x, by)
    apart = outlier_mask(rows, outliers)
    grid = quantise_filled if fill else code
    quantised = grid(name, rows, bits, apart, scales)
    stored = torch.where(apart, widen(rows), dequantise(*quantised))
    error = from_rows(widen(rows) - stored, by, x.shape[-1])
    factors = low_rank(error, rank, seed=seed)
    shape = (*rows.shape[:-1], 2 * outliers_per_end(rows.shape[-1], outliers))
    return GearBlock(
        bits,
        pack_bits(quantised.codes, bits),
        quantised.steps,
        quantised.minima,
        rows[apart].reshape(shape),
        apart.nonzero()[:, -1].reshape(shape).to(place_dtype(rows.shape[-1])),
        factors.left.to(x.dtype),
        factors.right.to(x.dtype),
    )


def quantise_filled(name: str, rows: Tensor, bits: int, apart: Tensor, scales: Scales) -> Quantised:
    """Quantise rows whose outliers have given way to the mean of all members."""
    mean = widen(rows).mean(-1, keepdim=True).to(rows.dtype)
    filled = torch.where(apart, mean, rows)
    quantised = code(name, filled, bits, torch.zeros_like(apart), scales)
    return quantised._replace(codes=quantised.codes.masked_fill(apart, 0))


def place_dtype(members: int) -> torch.dtype:
    """Return the smaller of two types that can count the members of a row."""
    return torch.int16 if members <= 2**15 else torch.int32


def to_rows(x: Tensor, by: Side) -> Tensor:
    """Return channels of each head as rows of tokens, or tokens as rows of all heads' channels."""
    return transposed(x) if by == "channel" else group_values(x, "token")


def from_rows(rows: Tensor, by: Side, width: int) -> Tensor:
    """Undo `to_rows`."""
    return transposed(rows) if by == "channel" else ungroup_values(rows, "token", width)
