"""GEAR's spans, rebound to vectorised codes, outliers and low-rank corrections."""

import reference
from optimized._rebind import rebind
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from optimized.vector.quantizers.low_rank import low_rank
from optimized.vector.quantizers.outliers import outlier_mask
from reference.quantizers import gear

quantise_filled = rebind(gear.quantise_filled, code=code)
compress_side = rebind(
    gear.compress_side,
    quantise_filled=quantise_filled,
    code=code,
    pack_bits=pack_bits,
    low_rank=low_rank,
    outlier_mask=outlier_mask,
)
gear_compress = rebind(reference.gear_compress, compress_side=compress_side)
gear_reconstruct = rebind(reference.gear_reconstruct, unpack_bits=unpack_bits)
