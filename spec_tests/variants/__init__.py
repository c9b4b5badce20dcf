"""Correct modules: what the suite must not stop, as `mutants` is what it must not let through.

Each idea's `variants.py` has other correct ways to write its functions. A module here has one
variant of each function, and is tested on those: `--impl spec_tests.variants:edges_1 --ours`. Three
more are the reference in other clothes: called through another module, with every operation rounded
otherwise, and computed in float64. `python -m spec_tests.variants` runs them all.
"""

from spec_tests.inputs import modules
from spec_tests.variants.make import MOST, Column, Wrapped, forwarded, in_double, under_noise

FILES = modules("**/variants.py")
COLUMNS = {
    f"{level}_{place + 1}": Column(level, place)
    for level in ("values", "edges")
    for place in range(MOST)
}
globals().update({name: column for name, column in COLUMNS.items() if column.changed})
renamed = Wrapped(forwarded)
noisy_1, noisy_2, noisy_3 = (Wrapped(under_noise(seed)) for seed in (1, -1, 2))
double = Wrapped(in_double)
