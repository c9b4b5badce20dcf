"""The systems, where `selection` looks for them."""

from optimized.study.systems import System as System
from optimized.study.systems import hex_settings as hex_settings
from optimized.study.systems import refinement as refinement
