"""GEAR by masks, with another start of the correction."""

import torch

import reference
from reference import GearBlock
from spec_tests.quantizers.low_rank.variants import orthonormal_at_each_pass
from spec_tests.variants.registry import register_variant


def as_rows(x, by):
    """Return a row of tokens for each channel, or a row of all heads' channels for each token."""
    return x.mT if by == "channel" else x.transpose(-3, -2).flatten(-2)


def as_heads(rows, by, width):
    """Undo `as_rows`."""
    if by == "channel":
        return rows.mT
    return rows.unflatten(-1, (rows.shape[-1] // width, width)).transpose(-3, -2)


@register_variant("gear_compress")
def subtract_part_by_part(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Store one part after another, each from what the earlier parts leave."""
    rows = as_rows(x, by)
    wide = rows.to(torch.promote_types(x.dtype, torch.float32))
    apart = reference.outlier_mask(rows, outliers)
    if fill:
        mean = wide.sum(-1, keepdim=True) / max(1, wide.shape[-1])
        grid = reference.quantise(torch.where(apart, mean.to(x.dtype), rows), bits, scales=scales)
        grid = grid._replace(codes=grid.codes * ~apart)
    else:
        grid = reference.quantise(rows, bits, apart, scales)
    rest = (wide - reference.dequantise(*grid)).masked_fill(apart, 0)
    factors = orthonormal_at_each_pass(
        as_heads(rest, by, x.shape[-1]).to(wide.dtype), rank, seed=seed
    )
    each = int(reference.outlier_mask(rows.new_zeros(rows.shape[-1]), outliers).sum())
    places = apart.nonzero()[:, -1].reshape(*rows.shape[:-1], each)
    return GearBlock(
        bits,
        reference.pack_bits(grid.codes, bits),
        grid.steps,
        grid.minima,
        rows.gather(-1, places),
        places.to(torch.int16 if rows.shape[-1] <= 2**15 else torch.int32),
        factors.left.to(x.dtype),
        factors.right.to(x.dtype),
    )


@register_variant("gear_reconstruct")
def scatter_outliers_and_add_correction(block, exact_outliers=False):
    """Restore codes, overwrite them with the outliers, and add the correction."""
    by = "channel" if block.words.ndim == block.left.ndim else "token"
    (kv_heads, tokens), width = block.left.shape[-3:-1], block.right.shape[-2]
    codes = reference.unpack_bits(
        block.words, block.bits, tokens if by == "channel" else kv_heads * width
    )
    dtype = torch.promote_types(block.left.dtype, torch.float32)
    rows = reference.dequantise(codes, block.steps, block.minima).to(dtype)
    places = block.places.long()
    low = torch.einsum("...tr,...cr->...tc", block.left.to(dtype), block.right.to(dtype))
    low = as_rows(low, by)
    if exact_outliers:
        low = low.scatter(-1, places, 0)
    rows = rows.scatter(-1, places, block.outliers.to(dtype)) + low
    return as_heads(rows, by, width).to(block.left.dtype)
