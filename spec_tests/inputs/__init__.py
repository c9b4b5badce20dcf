"""What every public function may be given, and what it must refuse.

One Hypothesis strategy and one list of refusals for each name in `reference.__all__`, in one file
for each paper.
"""

from spec_tests.inputs import (
    attention,
    base_scorers,
    cake,
    compress,
    coverage,
    decoding,
    expander,
    expected_attention,
    explicit,
    fastkvzip,
    gear,
    graphkv,
    hexcache,
    hubkv,
    hubkv_refine,
    kcvt,
    kivi,
    kvzip,
    locality,
    quantizer_size,
    retain,
)
from spec_tests.inputs.corners import CORNERS

__all__ = ["CORNERS", "INPUTS", "REFUSALS"]

FILES = (
    attention,
    cake,
    base_scorers,
    compress,
    coverage,
    decoding,
    expander,
    expected_attention,
    explicit,
    gear,
    fastkvzip,
    graphkv,
    hexcache,
    hubkv,
    hubkv_refine,
    kcvt,
    kivi,
    kvzip,
    locality,
    quantizer_size,
    retain,
)
INPUTS = {name: strategy for file in FILES for name, strategy in file.INPUTS.items()}
REFUSALS = {name: cases for file in FILES for name, cases in file.REFUSALS.items()}
