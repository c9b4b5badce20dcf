"""Shares whose sums have another order."""

from statistics import fmean

from reference import PaperSize, gear_size, kivi_size
from spec_tests.variants.registry import register_variant


@register_variant("kivi_share")
def over_a_common_denominator(bits, group, residual, tokens):
    """Add fractions of sixteenths, groups and tokens."""
    whole = 16 * group * tokens
    return 100 * (bits * group * tokens + 32 * tokens + 16 * group * residual) / whole


@register_variant("quantizer_sizes")
def prompt_by_prompt(prompts=(900, 1304, 1021), kv_heads=8, width=128):
    """Average the bytes of a token."""

    def percent(size):
        each = fmean(size(n).total / n for n in prompts)
        return 100 * each / (4 * kv_heads * width)

    gear = percent(lambda n: gear_size(n, kv_heads=kv_heads, width=width))
    four, two = (percent(lambda n, b=b: kivi_size(n, b, 64, 64, kv_heads, width)) for b in (4, 2))
    return (
        PaperSize("Table 1", "GEAR", 31.00, gear),
        PaperSize("Table 2", "KIVI-4", 34.20, four),
        PaperSize("Table 2", "KIVI-2", 21.70, two),
    )
