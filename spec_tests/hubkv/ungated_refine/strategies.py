"""Strategies for layers of heads, protected tokens and settings."""

from spec_tests.hubkv.head_calibration.strategies import bad_bounds
from spec_tests.hubkv.refine.strategies import corrected, correction

INPUTS = dict(ungated_refine=correction())
REFUSALS = dict(ungated_refine=(corrected, bad_bounds))
