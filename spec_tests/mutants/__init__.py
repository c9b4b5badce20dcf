"""Wrong implementations, each a one-line lie, and the law or vector that finds it out.

`pytest spec_tests --impl spec_tests.mutants:NAME` fails for every one of them;
`python -m spec_tests.mutants` runs each against the test it names and prints the report.
"""

from spec_tests.mutants import (
    attention,
    base_scorers,
    cake,
    compress,
    compress_systems,
    coverage,
    decoding,
    expander,
    expected_attention,
    fastkvzip,
    graphkv,
    graphkv_decay,
    graphkv_keys,
    graphkv_refine,
    graphkv_refine_choices,
    hexcache,
    hubkv,
    hubkv_budgets,
    hubkv_calibration,
    hubkv_refine,
    kcvt,
    kvzip,
    locality,
    quantizers_gear,
    quantizers_gear_cache,
    quantizers_kivi,
    quantizers_parts,
    quantizers_size,
    retain,
    store,
)
from spec_tests.mutants.make import MUTANTS

FILES = (
    attention,
    cake,
    base_scorers,
    compress,
    compress_systems,
    coverage,
    decoding,
    expander,
    expected_attention,
    fastkvzip,
    graphkv,
    graphkv_decay,
    graphkv_keys,
    graphkv_refine,
    graphkv_refine_choices,
    hexcache,
    hubkv,
    hubkv_budgets,
    hubkv_calibration,
    hubkv_refine,
    kcvt,
    kvzip,
    locality,
    quantizers_gear,
    quantizers_gear_cache,
    quantizers_kivi,
    quantizers_parts,
    quantizers_size,
    retain,
    store,
)

globals().update({name: mutant.module for name, mutant in MUTANTS.items()})
