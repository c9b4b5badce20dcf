"""KIVI's cache, rebound to vectorised codes."""

import reference
from optimized._rebind import rebind
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.quantizers import kivi

quantise_in_groups = rebind(kivi.quantise_in_groups, code=code, pack_bits=pack_bits)
kivi_append = rebind(reference.kivi_append, quantise_in_groups=quantise_in_groups)
kivi_prefill = rebind(reference.kivi_prefill, kivi_append=kivi_append)
kivi_read = rebind(reference.kivi_read, unpack_bits=unpack_bits)
