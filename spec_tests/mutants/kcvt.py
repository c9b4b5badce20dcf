"""Mutants of KCVT and bit packing."""

import math

import torch

import reference
from reference import Quantised
from spec_tests.mutants.make import mutant


def quantised(x, bits, kept, scales, levels=None, statistics=None, even=True):
    """Quantise with one thing changed."""
    exact = reference.quantise(x, bits, statistics, scales)
    top = 2**bits - 1
    step = exact.steps * top / (levels or top)
    low = exact.minima.to(x.dtype)[..., None]
    ratio = (x - low) / step.to(x.dtype)[..., None]
    codes = (ratio.round() if even else (ratio + 0.5).floor()).clamp(0, top)
    gone = (step == 0)[..., None] if kept is None else kept | (step == 0)[..., None]
    return Quantised(codes.masked_fill(gone, 0).to(torch.uint8), step, exact.minima)


@mutant(
    "quantise",
    "the step is the whole range, as printed",
    killer="hex/test_kcvt.py::test_a_step_of_the_whole_range_would_leave_two_levels",
)
def literal_step(x, bits, kept=None, scales=None):
    """Divide the range by one."""
    return quantised(x, bits, kept, scales, levels=1, statistics=kept)


@mutant(
    "quantise",
    "the step is the range over 2^b",
    killer="hex/test_kcvt.py::test_the_minimum_is_exact_and_the_maximum_nearly",
)
def one_level_too_many(x, bits, kept=None, scales=None):
    """Count levels where intervals count."""
    return quantised(x, bits, kept, scales, levels=2**bits, statistics=kept)


@mutant(
    "quantise",
    "kept entries enter minimum and maximum",
    killer="hex/test_kcvt.py::test_kept_entries_do_not_enter_the_statistics",
)
def polluted_statistics(x, bits, kept=None, scales=None):
    """Take the range of everything."""
    return quantised(x, bits, kept, scales)


@mutant(
    "quantise",
    "ties round up",
    killer="test_vectors.py::test_vector[kcvt-ties-round-to-even]",
)
def half_up(x, bits, kept=None, scales=None):
    """Add a half and take the floor."""
    return quantised(x, bits, kept, scales, statistics=kept, even=False)


@mutant(
    "quantise",
    "codes are of the exact scales, not of the stored ones",
    killer="hex/test_kcvt.py::test_codes_are_the_nearest_to_the_stored_grid",
)
def codes_of_exact_scales(x, bits, kept=None, scales=None):
    """Round minimum and step after the codes are made."""
    exact = reference.quantise(x.double(), bits, kept)
    stored = scales or x.dtype
    return Quantised(exact.codes, exact.steps.to(stored), exact.minima.to(stored))


@mutant(
    "quantise",
    "grids are symmetric about zero",
    killer="hex/test_kcvt.py::test_the_error_is_at_most_half_a_step",
)
def symmetric(x, bits, kept=None, scales=None):
    """Use one scale from minus to plus the largest magnitude."""
    q = reference.quantise(x, bits, kept, scales)
    high = torch.maximum(q.minima.abs(), (q.minima + q.steps * (2**bits - 1)).abs())
    return Quantised(q.codes, q.steps, -high)


@mutant(
    "kcvt",
    "keys go by token and values by channel",
    killer="test_vectors.py::test_vector[kcvt-keys-by-channel-values-by-token]",
)
def exchanged_axes(keys, values, bits=3, kept=None, value_group="token", scales=None):
    """Exchange keys and values."""
    out = reference.kcvt(values, keys, bits, kept, value_group, scales)
    return out[1], out[0]


@mutant(
    "kcvt",
    "kept entries are restored from codes",
    killer="hex/test_kcvt.py::test_kept_entries_come_back_bit_for_bit",
)
def kept_are_quantised(keys, values, bits=3, kept=None, value_group="token", scales=None):
    """Forget the mask."""
    return reference.kcvt(keys, values, bits, None, value_group, scales)


@mutant(
    "kcvt",
    "nothing is quantised",
    killer="hex/test_kcvt.py::test_codes_are_used_where_they_are_supposed_to_be",
)
def untouched(keys, values, bits=3, kept=None, value_group="token", scales=None):
    """Return the input."""
    return keys.clone(), values.clone()


@mutant(
    "pack_bits",
    "codes of 3 bits take 4",
    killer="hex/test_packing.py::test_packed_codes_waste_less_than_a_word_a_row",
)
def nibbles(codes, bits):
    """Pad to the next power of two."""
    return reference.pack_bits(codes, 2 ** math.ceil(math.log2(bits)))


@mutant(
    "unpack_bits",
    "the sign is dragged along",
    killer="hex/test_packing.py::test_unpacking_returns_what_was_packed",
)
def arithmetic_shift(words, bits, length):
    """Shift signed words, and mask only where a code lies within one."""
    codes = reference.unpack_bits(words, bits, length)
    for i in range(length):
        word, place = divmod(bits * i, 32)
        if place + bits > 32:
            spread = (words[..., word] >> place).to(torch.uint8)
            codes[..., i] |= spread & (2**bits - 1)
    return codes


@mutant(
    "quantise",
    "a code may be above the grid's last",
    killer="hex/test_kcvt.py::test_a_code_never_exceeds_the_grid",
)
def codes_above_the_grid(x, bits, kept=None, scales=None):
    """Clamp to what a byte holds."""
    q = reference.quantise(x, bits, kept, scales)
    step = q.steps.to(x.dtype)[..., None]
    codes = ((x - q.minima.to(x.dtype)[..., None]) / step).round().clamp(0, 255)
    beyond = (codes > 2**bits - 1) & (step > 0) & (kept is None or ~kept)
    return q._replace(codes=torch.where(beyond, codes, q.codes.to(x.dtype)).to(torch.uint8))


@mutant(
    "quantise",
    "scales are stored in the type of what they scale",
    killer="hex/test_kcvt.py::test_scales_are_stored_in_the_type_asked_for",
)
def scales_of_the_input(x, bits, kept=None, scales=None):
    """Round the scales of a bfloat16 cache to bfloat16."""
    q = reference.quantise(x, bits, kept, scales)
    own = scales or x.dtype
    return q._replace(steps=q.steps.to(own), minima=q.minima.to(own))


@mutant(
    "kcvt",
    "what rounds past the largest finite number is infinite",
    killer="hex/test_kcvt.py::test_the_largest_numbers_stay_finite",
)
def infinite_ends(keys, values, bits=3, kept=None, value_group="token", scales=None):
    """Restore in float32 and convert."""
    stored = scales or (torch.float16 if keys.dtype == torch.float16 else None)
    wide = reference.kcvt(keys.float(), values.float(), bits, kept, value_group, stored)
    return wide[0].to(keys.dtype), wide[1].to(values.dtype)
