"""Mutants of GEAR."""

import torch

import reference
from reference import GearBlock, LowRank
from reference.hex.kcvt import by_column, by_row, from_row
from spec_tests.mutants.make import mutant

GEAR = "quantizers/test_gear.py::test_"
CACHE = "quantizers/test_gear_cache.py::test_"
RANK = "quantizers/test_low_rank.py::test_"
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
def always_exact(block, exact_outliers=False):
    """Write S over the sum, unasked."""
    return reference.gear_reconstruct(block, True)


@mutant(
    "outlier_mask",
    "outliers are the largest magnitudes",
    killer="quantizers/test_outliers.py::test_what_is_left_is_the_middle_of_the_order",
)
def by_magnitude(x, ratio=0.02):
    """Take both ends' share from the top of the magnitudes."""
    count = int(reference.outlier_mask(x, ratio).sum(-1).max()) if x.numel() else 0
    order = x.abs().sort(dim=-1, descending=True, stable=True).indices[..., :count]
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, order, True)


@mutant(
    "outlier_mask",
    "each end is chosen on its own, so that equals overlap",
    killer="quantizers/test_outliers.py::test_no_member_is_both_where_all_are_equal",
)
def overlapping_ends(x, ratio=0.02):
    """Take the first of the largest, and the first of the smallest."""
    count = int(reference.outlier_mask(x, ratio).sum(-1).max()) // 2 if x.numel() else 0
    ends = [
        x.sort(dim=-1, descending=down, stable=True).indices[..., :count] for down in (True, False)
    ]
    return torch.zeros_like(x, dtype=torch.bool).scatter(-1, torch.cat(ends, -1), True)


@mutant(
    "outlier_mask",
    "the count of an end is rounded to the nearest",
    killer="quantizers/test_outliers.py::test_a_block_of_twenty_tokens_has_no_outlier_at_two_percent",
)
def nearest_count(x, ratio=0.02):
    """Round where the count is rounded down."""
    members = max(1, x.shape[-1])
    return reference.outlier_mask(x, min(1.0, (2 * round(ratio * members / 2) + 0.5) / members))


@mutant(
    "low_rank",
    "the last basis is not orthonormal",
    killer=RANK + "factors_are_a_basis_and_the_shadow_on_it",
)
def without_orthonormal_basis(x, rank, rounds=3, seed=0):
    """Leave out the last decomposition."""
    factors = reference.low_rank(x, rank, rounds, seed)
    wide = x.to(factors.left.dtype)
    left = wide @ factors.right
    return LowRank(left, wide.mT @ left)


@mutant(
    "low_rank",
    "the block passes through the matrix once",
    killer=RANK + "one_direction_of_any_matrix_is_that_of_its_powers",
)
def one_pass(x, rank, rounds=3, seed=0):
    """Forget the powers."""
    return reference.low_rank(x, rank, 1, seed)


@mutant(
    "low_rank",
    "blocks of different ranks have nothing in common",
    killer=RANK + "a_higher_rank_never_leaves_more",
)
def another_block_for_each_rank(x, rank, rounds=3, seed=0):
    """Let the rank into the seed."""
    return reference.low_rank(x, rank, 1, 1000 * rank + seed)


@mutant(
    "low_rank",
    "the block is drawn from the global generator",
    killer=RANK + "the_seed_alone_decides",
)
def unseeded(x, rank, rounds=3, seed=0):
    """Ask torch for a seed."""
    return reference.low_rank(x, rank, rounds, int(torch.randint(2**31, ())))


@mutant(
    "low_rank",
    "the seed is not used",
    killer=RANK + "another_seed_starts_elsewhere",
)
def one_seed_for_all(x, rank, rounds=3, seed=0):
    """Forget the seed."""
    return reference.low_rank(x, rank, rounds)


@mutant(
    "gear_append",
    "decoded blocks are corrected at the prompt's rank",
    killer=CACHE + "the_prompt_is_one_span_and_each_decoded_block_another",
)
def rank_of_the_prompt(cache, keys, values):
    """Take the rank of the first block."""
    ranks = [block.left.shape[-1] for block in cache.key_blocks]
    changed = cache._replace(decoded_rank=ranks[0] if ranks else cache.decoded_rank)
    after = reference.gear_append(changed, keys, values)
    return after._replace(decoded_rank=cache.decoded_rank)


@mutant(
    "gear_append",
    "tokens left over when a block fills are lost",
    killer=CACHE + "decoding_in_any_chunks_gives_the_same_cache",
)
def gear_lost_tokens(cache, keys, values):
    """Empty the buffers whole."""
    after = reference.gear_append(cache, keys, values)
    if len(after.key_blocks) == len(cache.key_blocks):
        return after
    nothing = after.residual_keys[..., :0, :]
    return after._replace(residual_keys=nothing, residual_values=nothing)


@mutant(
    "gear_append",
    "the first block is compressed again",
    killer=CACHE + "append_never_changes_a_byte_of_earlier_blocks",
)
def gear_recompressed(cache, keys, values):
    """Compress what the first block of values restores."""
    after = reference.gear_append(cache, keys, values)
    if len(after.value_blocks) == len(cache.value_blocks) or not cache.value_blocks:
        return after
    first: GearBlock = cache.value_blocks[0]
    again = reference.gear_compress(
        reference.gear_reconstruct(first) + 1, "token", first.bits, cache.outliers, 0
    )
    return after._replace(value_blocks=(again, *after.value_blocks[1:]))


@mutant(
    "gear_read",
    "the buffer comes first",
    killer=CACHE + "what_is_read_is_every_block_in_order_and_the_buffer_as_it_is",
)
def buffer_first(cache, exact_outliers=False):
    """Put the newest tokens in front."""
    left = cache.residual_keys.shape[-2]
    return tuple(x.roll(left, -2) for x in reference.gear_read(cache, exact_outliers))
