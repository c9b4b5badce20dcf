"""Other correct ways to compute the size of a cache."""

from decimal import Decimal
from math import ceil, floor
from statistics import fmean

import torch

import reference
from spec_tests.variants.registry import register_variant


def by_formula(config, tokens, kv_heads=8, width=128, dtype=torch.float16):
    """Compute the formula with shares as decimals."""
    d, e = kv_heads * width, torch.empty(0, dtype=dtype).element_size()
    held = config.recent if config.carry_recent else 0
    n = max(0, tokens - held) // config.block * config.block
    recent = min(n, 0 if config.carry_recent else config.recent)
    kept = min(n, floor(Decimal(str(config.heavy)) * n) + recent)
    share = Decimal(str(config.density)) * d
    scales = config.scales or (torch.float16 if dtype == torch.float16 else torch.float32)
    if config.scales is None and dtype == torch.float64:
        scales = torch.float64
    groups = (d if n else 0) + n * (kv_heads if config.value_group == "head" else 1)
    later = n if config.mode != "append" else 0
    return reference.HexBytes(
        codes=2 * d * 4 * ceil(config.bits * n / 32),
        scales=2 * torch.empty(0, dtype=scales).element_size() * groups,
        expander=2 * e * int(share.to_integral_value()) * (n - kept),
        tokens=2 * e * d * kept,
        marks=n,
        residual=2 * e * d * (tokens - n),
        mass=(8 if dtype == torch.float64 else 4) * (tokens - n + later),
        originals=2 * e * d * (n if config.mode == "oracle" else 0),
    )


@register_variant("paper_size")
def by_rows(prompts=(900, 1304, 1021), kv_heads=8, width=128):
    """Return the printed sizes, and the mean of ours."""
    printed = {"KCVT-3": 20.75, "HEX-3": 25.35, "HEX-4": 31.50}
    rows = [(f"Table {t}", name, size) for t in (1, 2) for name, size in printed.items()]
    rows += [("Table 3", "LongBench-3", 26.45), ("Table 3", "LongBench-4", 32.70)]
    rows += [("Table 3", "LongBench-4-full", 32.70)]

    def percent(name, length):
        size = by_formula(reference.hex_preset(name), length, kv_heads, width)
        return sum(size) / (4 * kv_heads * width * length) * 100

    return tuple(
        reference.PaperSize(table, name, size, fmean(percent(name, n) for n in prompts))
        for table, name, size in rows
    )
