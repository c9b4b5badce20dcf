"""GEAR's spans over fast codes, outliers and corrections."""

import reference
from optimized._composed import composed

gear_compress = composed(reference.gear_compress)
gear_reconstruct = composed(reference.gear_reconstruct)
