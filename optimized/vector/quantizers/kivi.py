"""KIVI's cache over fast codes."""

import reference
from optimized._composed import composed

kivi_prefill = composed(reference.kivi_prefill)
kivi_append = composed(reference.kivi_append)
kivi_read = composed(reference.kivi_read)
