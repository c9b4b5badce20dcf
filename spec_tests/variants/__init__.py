"""Correct modules, which the suite must pass.

The `variants.py` of each idea holds other correct ways to write its functions. Each module here has
one variant of each function, and is tested on those: `--impl spec_tests.variants:edges_1 --ours`.

Four more kinds are the reference itself: called through another module, with every operation
rounded differently, computed in float64, and with other random streams. `python -m
spec_tests.variants` runs them all.
"""

from spec_tests.inputs import modules
from spec_tests.variants.registry import (
    MOST,
    ReferenceWithVariants,
    ReseededReference,
    WrappedReference,
    forward,
    in_double,
    with_rounding_noise,
)

FILES = modules("**/variants.py")
COLUMNS = {
    f"{level}_{place + 1}": ReferenceWithVariants(level, place)
    for level in ("values", "edges")
    for place in range(MOST)
}
globals().update({name: column for name, column in COLUMNS.items() if column.changed})
renamed = WrappedReference(forward)
noisy_1, noisy_2, noisy_3 = (WrappedReference(with_rounding_noise(seed)) for seed in (1, -1, 2))
double = WrappedReference(in_double)
elsewhere = ReseededReference()
