"""KIVI's cache, rebound to vectorised codes."""

import reference
from optimized._rebind import rebind
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.quantizers import kivi

in_groups = rebind(kivi.in_groups, code=code, pack_bits=pack_bits)
with_quantised_keys = rebind(kivi.with_quantised_keys, in_groups=in_groups)
with_quantised_values = rebind(kivi.with_quantised_values, in_groups=in_groups)
kivi_append = rebind(
    reference.kivi_append,
    with_quantised_keys=with_quantised_keys,
    with_quantised_values=with_quantised_values,
)
kivi_prefill = rebind(reference.kivi_prefill, kivi_append=kivi_append)
kivi_read = rebind(reference.kivi_read, unpack_bits=unpack_bits)
