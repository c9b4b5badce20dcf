"""Correct modules, which the suite must pass.

A function that is written only once, apart from its reference, has another correct writing in the
`variants.py` of its idea. The others have a body of `optimized`, a function in `docs/js/kv.js` or
one in the puzzles. `values` and `edges` are the modules of these variants:
`--impl spec_tests.variants:edges --ours`.

Four more kinds are the reference itself: called through another module, with every operation
rounded differently, computed in float64, and with other random streams. `python -m
spec_tests.variants` runs them all.
"""

from spec_tests.inputs import modules
from spec_tests.variants.registry import (
    ReferenceWithVariants,
    ReseededReference,
    WrappedReference,
    forward,
    in_double,
    with_rounding_noise,
)

FILES = modules("**/variants.py")
values, edges = ReferenceWithVariants("values"), ReferenceWithVariants("edges")
renamed = WrappedReference(forward)
noisy_1, noisy_2, noisy_3 = (WrappedReference(with_rounding_noise(seed)) for seed in (1, -1, 2))
double = WrappedReference(in_double)
elsewhere = ReseededReference()
