"""Correct modules, which the suite must pass.

A function that is written only once, apart from its reference, has another correct writing in the
`variants.py` of its idea, unless it is a table or a formula. The others have a body of `optimized`,
a function in `docs/js/kv.js` or one in the puzzles. `values` and `edges` are the modules of these
variants: `--impl spec_tests.variants:edges --ours`.

Four more kinds are the reference itself: called through another module, with every operation
rounded differently, computed in float64, and with other random streams. `python -m
spec_tests.variants` runs them all.
"""

from spec_tests.inputs import DRAWN, modules
from spec_tests.variants.registry import (
    VARIANTS,
    ReseededStore,
    forward,
    in_double,
    reference_with,
    reseed,
    with_rounding_noise,
)

FILES = modules("**/variants.py")
# `changed` names the functions that are tested
values, edges = (
    reference_with(lambda body: body, **variants, changed=frozenset(variants))
    for variants in VARIANTS.values()
)
renamed, double = reference_with(forward), reference_with(in_double)
noisy_1, noisy_2, noisy_3 = (reference_with(with_rounding_noise(seed)) for seed in (1, -1, 2))
elsewhere = reference_with(reseed, MaskStore=ReseededStore, changed=frozenset(DRAWN))
