"""GEAR's spans, of vectorised codes, outliers and low-rank corrections."""

import torch
from torch import Tensor

from optimized.vector.hex.compress import numbers
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from optimized.vector.quantizers.low_rank import low_rank
from optimized.vector.quantizers.outliers import outlier_mask
from reference.hex.kcvt import Quantised, dequantise
from reference.precision import widen
from reference.quantizers.gear import GearBlock, Side, from_rows, place_dtype, to_rows
from reference.quantizers.outliers import outliers_per_end


def quantise_filled(
    name: str, rows: Tensor, bits: int, apart: Tensor, scales: torch.dtype | None
) -> Quantised:
    mean = widen(rows).mean(-1, keepdim=True).to(rows.dtype)
    filled = torch.where(apart, mean, rows)
    quantised = code(name, filled, bits, torch.zeros_like(apart), scales)
    return quantised._replace(codes=quantised.codes.masked_fill(apart, 0))


def compress_side(
    name: str,
    x: Tensor,
    by: Side,
    bits: int,
    outliers: float,
    rank: int,
    fill: bool,
    seed: int,
    scales: torch.dtype | None,
) -> GearBlock:
    rows = to_rows(x, by)
    apart = outlier_mask(rows, outliers)
    grid = quantise_filled if fill else code
    quantised = grid(name, rows, bits, apart, scales)
    stored = torch.where(apart, widen(rows), dequantise(*quantised))
    error = from_rows(widen(rows) - stored, by, x.shape[-1])
    factors = low_rank(error, rank, rounds=3, seed=seed)
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


def gear_compress(
    x: Tensor,
    by: Side,
    bits: int,
    outliers: float,
    rank: int,
    fill: bool,
    seed: int,
    scales: torch.dtype | None,
) -> GearBlock:
    return compress_side("x", x, by, bits, outliers, rank, fill, seed, scales)


def gear_reconstruct(block: GearBlock, exact_outliers: bool) -> Tensor:
    by: Side = "channel" if block.words.ndim == block.left.ndim else "token"
    (kv_heads, tokens), width = block.left.shape[-3:-1], block.right.shape[-2]
    members = tokens if by == "channel" else kv_heads * width
    codes = unpack_bits(block.words, block.bits, members)
    rows = numbers(codes, block.steps[..., None], block.minima[..., None])
    left, right = widen(block.left), widen(block.right)
    places, exact = block.places.long(), widen(block.outliers)
    rows = rows.to(left.dtype).scatter_(-1, places, exact)
    if by == "channel":
        rows += right @ left.mT
    else:
        from_rows(rows, by, width).add_(left @ right.mT)
    if exact_outliers:
        rows.scatter_(-1, places, exact)
    return from_rows(rows, by, width).to(block.left.dtype)
