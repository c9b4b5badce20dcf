"""Every public function has a correct variant, and each is tested.

`python -m spec_tests.variants` runs them.
"""

from inspect import isfunction

import reference
from spec_tests.variants.registry import MOST, VARIANTS


def test_every_public_function_has_a_correct_variant():
    functions = {n for n in reference.__all__ if isfunction(getattr(reference, n))}
    assert functions <= {variant.name for variant in VARIANTS}


def test_no_variant_is_left_out():
    places = [(variant.name, variant.level) for variant in VARIANTS]
    assert max(map(places.count, places)) <= MOST
