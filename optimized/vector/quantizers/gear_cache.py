"""GEAR's streaming cache over fast spans."""

import reference
from optimized._composed import composed

gear_prefill = composed(reference.gear_prefill)
gear_append = composed(reference.gear_append)
gear_read = composed(reference.gear_read)
