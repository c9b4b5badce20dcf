"""The table of settings, one row after another."""

import reference
from spec_tests.variants.registry import register_variant

ROWS = {
    # bits, density, heavy, recent
    "HEX-3": (3, 0.03125, 0.02, 8),
    "HEX-4": (4, 0.03125, 0.02, 8),
    "KCVT-3": (3, 0.0, 0.0, 0),
    "KCVT-4": (4, 0.0, 0.0, 0),
    "LongBench-3": (3, 0.046875, 0.02, 8),
    "LongBench-4": (4, 0.046875, 0.02, 8),
    "LongBench-4-full": (4, 0.046875, 0.02, 8),
    "Table4-3-full": (3, 0.03125, 0.02, 8),
    "Table4-3-expander": (3, 0.03125, 0.0, 0),
    "Table4-3-H2O": (3, 0.0, 0.02, 8),
    "Table4-3-quant": (3, 0.0, 0.0, 0),
    "Table4-4-full": (4, 0.046875, 0.02, 8),
    "Table4-4-expander": (4, 0.046875, 0.0, 0),
    "Table4-4-expander-EO": (4, 0.078125, 0.0, 0),
    "Table4-4-H2O": (4, 0.0, 0.02, 8),
    "Table4-4-H2O-EO": (4, 0.0, 0.05, 16),
    "Table4-4-quant": (4, 0.0, 0.0, 0),
}


@register_variant("hex_preset")
def by_row(name):
    """A density without exact degrees for a block takes the nearest degrees."""
    bits, density, heavy, recent = ROWS[name]
    mode = "full" if name == "LongBench-4-full" else "append"
    near = density in (0.046875, 0.078125)
    return reference.HexConfig(bits, density, heavy, recent, mode=mode, near=near)
