"""Mutants of GEAR's spans."""

import torch

import reference
from reference.hex.kcvt import by_column, by_row, from_row
from spec_tests.mutants.make import mutant

GEAR = "quantizers/test_gear.py::test_"
VECTOR = "test_vectors.py::test_vector[quantizers-"


def rows_of(x, by):
    """Return channels, or tokens over all heads, as rows."""
    return by_column(x) if by == "channel" else by_row(x, "token")


def compressed(x, by, bits, outliers, rank, fill, seed, scales, filler=None, quantise=None):
    """Compress with another filler, or another grid."""
    block = reference.gear_compress(x, by, bits, outliers, rank, fill, seed, scales)
    rows = rows_of(x, by)
    apart = reference.outlier_mask(rows, outliers)
    filled = rows if filler is None else torch.where(apart, filler(rows), rows)
    q = (quantise or reference.quantise)(filled, bits, None, scales)
    codes = q.codes.masked_fill(apart, 0)
    near = torch.where(apart, rows, reference.dequantise(codes, q.steps, q.minima).to(x.dtype))
    error = rows - near
    error = by_column(error) if by == "channel" else from_row(error, "token", x.shape[-1])
    factors = reference.low_rank(error, rank, seed=seed)
    return block._replace(
        words=reference.pack_bits(codes.clamp(max=2**bits - 1), bits),
        steps=q.steps,
        minima=q.minima,
        left=factors.left.to(x.dtype),
        right=factors.right.to(x.dtype),
    )


@mutant(
    "gear_compress",
    "with outliers a grid has b^2 - 1 intervals",
    killer=VECTOR + "gear-has-eight-levels-at-three-bits]",
)
def b_squared_levels(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Square the bits where two is raised to them: nine levels at 3."""

    def quantise(rows, bits, kept, scales):
        q = reference.quantise(rows, bits, kept, scales)
        steps = q.steps * (2**bits - 1) / max(1, bits**2 - 1)
        places = (rows - q.minima[..., None]) / steps[..., None]
        codes = places.nan_to_num().round().clamp(0, 255).to(torch.uint8)
        return q._replace(codes=codes, steps=steps)

    mean = lambda rows: rows.mean(-1, keepdim=True)  # noqa: E731
    settings = by, bits, outliers, rank, fill, seed, scales
    return compressed(x, *settings, filler=mean, quantise=quantise)


@mutant(
    "gear_compress",
    "the places of outliers are filled with zero",
    killer=VECTOR + "gear-fills-an-outliers-place-with-the-mean-of-the-row]",
)
def filled_with_zero(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Take outliers away and leave nothing."""
    settings = by, bits, outliers, rank, fill, seed, scales
    return compressed(x, *settings, filler=torch.zeros_like)


@mutant(
    "gear_compress",
    "outliers stay in the statistics",
    killer=GEAR + "a_grid_has_two_to_the_bits_levels_with_outliers_too",
)
def outliers_in_the_grid(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Quantise before the outliers are taken out."""
    return compressed(x, by, bits, outliers, rank, fill, seed, scales)


@mutant(
    "gear_compress",
    "the correction is of what quantisation alone leaves of the outliers, too",
    killer=GEAR + "a_correction_of_the_errors_whole_rank_mends_everything",
)
def residual_without_outliers(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Leave S out of the residual: what it stores is corrected a second time."""
    settings = by, bits, outliers, rank, fill, seed, scales
    block, rows = reference.gear_compress(x, *settings), rows_of(x, by)
    codes = reference.unpack_bits(block.words, bits, rows.shape[-1])
    error = rows - reference.dequantise(codes, block.steps, block.minima).to(x.dtype)
    error = by_column(error) if by == "channel" else from_row(error, "token", x.shape[-1])
    factors = reference.low_rank(error, rank, seed=seed)
    return block._replace(left=factors.left.to(x.dtype), right=factors.right.to(x.dtype))


@mutant(
    "gear_compress",
    "values have a grid for each head",
    killer=VECTOR + "gear-rows-of-values-span-the-heads]",
)
def values_head_by_head(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Quantise each head's tokens on their own."""
    settings = by, bits, outliers, rank, fill, seed, scales
    if by == "channel" or x.numel() == 0:
        return reference.gear_compress(x, *settings)
    blocks = [reference.gear_compress(head[..., None, :, :], *settings) for head in x.unbind(-3)]
    joint = reference.gear_compress(x, *settings)
    return joint._replace(steps=blocks[0].steps, minima=blocks[0].minima)


@mutant(
    "gear_compress",
    "all heads share one correction",
    killer=GEAR + "each_head_has_a_correction_of_its_own",
)
def correction_over_all_heads(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Correct the mean of the heads."""
    block = reference.gear_compress(x, by, bits, outliers, rank, fill, seed, scales)
    left = block.left.mean(-3, keepdim=True).expand_as(block.left)
    return block._replace(left=left.contiguous())


@mutant(
    "gear_reconstruct",
    "the correction is left out",
    killer=GEAR + "codes_are_used_and_a_correction_helps",
)
def uncorrected(block, exact_outliers=False):
    """Return Q + S."""
    return reference.gear_reconstruct(block._replace(left=block.left * 0), exact_outliers)


@mutant(
    "gear_reconstruct",
    "outliers are always exact",
    killer=GEAR + "outliers_are_stored_exactly_and_moved_by_the_correction_alone",
)
def outliers_always_exact(block, exact_outliers=False):
    """Write S over the sum, unasked."""
    return reference.gear_reconstruct(block, True)


@mutant(
    "gear_compress",
    "a place takes two bytes in the longest row",
    killer=GEAR + "the_last_place_of_a_long_row_can_be_counted",
)
def places_of_two_bytes(
    x, by="channel", bits=4, outliers=0.02, rank=4, fill=True, seed=0, scales=None
):
    """Count places modulo 2^16, with a sign."""
    block = reference.gear_compress(x, by, bits, outliers, rank, fill, seed, scales)
    return block._replace(places=block.places.to(torch.int16))
