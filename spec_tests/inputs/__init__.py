"""What every public function may be given, and what it must refuse.

One Hypothesis strategy and one list of refusals for each name in `reference.__all__`, in one file
for each paper.
"""

from spec_tests.inputs import (
    attention,
    base_scorers,
    compress,
    coverage,
    decoding,
    expander,
    explicit,
    graphkv,
    hexcache,
    hubkv,
    hubkv_refine,
    kcvt,
    locality,
    retain,
)

FILES = (
    attention,
    base_scorers,
    compress,
    coverage,
    decoding,
    expander,
    explicit,
    graphkv,
    hexcache,
    hubkv,
    hubkv_refine,
    kcvt,
    locality,
    retain,
)
INPUTS = {name: strategy for file in FILES for name, strategy in file.INPUTS.items()}
REFUSALS = {name: cases for file in FILES for name, cases in file.REFUSALS.items()}
