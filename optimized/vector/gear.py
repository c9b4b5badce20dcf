"""GEAR's spans and cache: all rows, all heads at once."""

from fractions import Fraction
from math import floor

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.hex.kcvt import Quantised, by_row, dequantise, from_row, narrow
from reference.precision import widen
from reference.quantizers.gear import GearBlock
from reference.quantizers.low_rank import LowRank


def outlier_mask(
    x: Float[Tensor, "*rows members"], ratio: float = 0.02
) -> Bool[Tensor, "*rows members"]:
    members = x.shape[-1]
    count = floor(Fraction(str(ratio)) * members / 2)
    mask = torch.zeros_like(x, dtype=torch.bool)
    if count:
        order = x.sort(dim=-1, descending=True, stable=True).indices
        ends = torch.cat([order[..., :count], order[..., members - count :]], -1)
        mask.scatter_(-1, ends, True)
    return mask


def low_rank(
    x: Float[Tensor, "*batch rows columns"], rank: int, rounds: int = 3, seed: int = 0
) -> LowRank:
    wide, (rows, columns) = widen(x), x.shape[-2:]
    rank = min(rank, rows, columns)
    if rank == 0 or not x.numel():
        shape = x.shape[:-2]
        return LowRank(wide.new_zeros(*shape, rows, rank), wide.new_zeros(*shape, columns, rank))
    largest = wide.abs().amax((-2, -1), keepdim=True)
    nothing = largest == 0
    matrix = wide / largest.masked_fill(nothing, 1)
    generator = np.random.RandomState([seed, 4])
    block = torch.from_numpy(2 * generator.random_sample((rank, columns)) - 1).mT
    right = block.to(wide).expand(*x.shape[:-2], columns, rank)
    for _ in range(rounds - 1):
        right = matrix.mT @ (matrix @ right)
    left = orthonormal(matrix @ orthonormal(right))
    right = matrix.mT @ left * largest
    return LowRank(left.masked_fill(nothing, 0), right.masked_fill(nothing, 0))


def orthonormal(x: Tensor) -> Tensor:
    basis, triangle = torch.linalg.qr(x)
    turned = triangle.diagonal(dim1=-2, dim2=-1)[..., None, :] < 0
    return torch.where(turned, -basis, basis)


def gear_compress(
    x: Float[Tensor, "*batch kv_heads tokens width"],
    by: str = "channel",
    bits: int = 4,
    outliers: float = 0.02,
    rank: int = 4,
    fill: bool = True,
    seed: int = 0,
    scales: torch.dtype | None = None,
) -> GearBlock:
    return compressed("x", x, by, bits, outliers, rank, fill, seed, scales)


def gear_reconstruct(
    block: GearBlock, exact_outliers: bool = False
) -> Float[Tensor, "*batch kv_heads tokens width"]:
    by = "channel" if block.words.ndim == block.left.ndim else "token"
    (kv_heads, tokens), width = block.left.shape[-3:-1], block.right.shape[-2]
    members = tokens if by == "channel" else kv_heads * width
    codes = unpack_bits(block.words, block.bits, members)
    rows = dequantise(codes, block.steps, block.minima).to(widen(block.left).dtype)
    places, exact = block.places.long(), widen(block.outliers)
    rows = rows.scatter(-1, places, exact)
    if block.left.shape[-1]:
        rows = rows + to_rows(widen(block.left) @ widen(block.right).mT, by)
        rows = rows.scatter(-1, places, exact) if exact_outliers else rows
    return narrow(from_rows(rows, by, width), block.left.dtype)


def compressed(
    name: str,
    x: Tensor,
    by: str,
    bits: int,
    outliers: float,
    rank: int,
    fill: bool,
    seed: int,
    scales: torch.dtype | None,
) -> GearBlock:
    rows = to_rows(x, by)
    apart = outlier_mask(rows, outliers)
    grid = filled_grid if fill and rows.shape[-1] else code
    quantised = grid(name, rows, bits, apart, scales)
    stored = torch.where(apart, widen(rows), dequantise(*quantised))
    error = from_rows(widen(rows) - stored, by, x.shape[-1])
    factors = low_rank(error, rank, seed=seed)
    members = rows.shape[-1]
    shape = (*rows.shape[:-1], 2 * floor(Fraction(str(outliers)) * members / 2))
    places = apart.nonzero()[:, -1].to(torch.int16 if members <= 2**15 else torch.int32)
    return GearBlock(
        bits=bits,
        words=pack_bits(quantised.codes, bits),
        steps=quantised.steps,
        minima=quantised.minima,
        outliers=rows[apart].reshape(shape),
        places=places.reshape(shape),
        left=narrow(factors.left, x.dtype),
        right=narrow(factors.right, x.dtype),
    )


def filled_grid(
    name: str, rows: Tensor, bits: int, apart: Tensor, scales: torch.dtype | None
) -> Quantised:
    mean = narrow(widen(rows).mean(-1, keepdim=True), rows.dtype)
    quantised = code(name, torch.where(apart, mean, rows), bits, torch.zeros_like(apart), scales)
    return quantised._replace(codes=quantised.codes.masked_fill(apart, 0))


def to_rows(x: Tensor, by: str) -> Tensor:
    return x.mT if by == "channel" else by_row(x, "token")


def from_rows(rows: Tensor, by: str, width: int) -> Tensor:
    return rows.mT if by == "channel" else from_row(rows, "token", width)
