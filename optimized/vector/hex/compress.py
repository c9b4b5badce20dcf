"""One span of a HEX cache, compressed and restored without loops."""

from torch import Tensor

import reference
from optimized._rebind import rebind
from optimized.vector.hex.kcvt import code
from optimized.vector.hex.packing import pack_bits, unpack_bits
from reference.hex import compress


def hex_mask(expander: Tensor, dynamic: Tensor, kv_heads: int) -> Tensor:
    static = expander.unflatten(1, (kv_heads, expander.shape[1] // kv_heads)).movedim(1, 0)
    return static | dynamic[..., None, :, None]


hex_compress = rebind(reference.hex_compress, hex_mask=hex_mask, code=code, pack_bits=pack_bits)
restored = rebind(compress.restored, hex_mask=hex_mask, unpack_bits=unpack_bits)
hex_reconstruct = rebind(reference.hex_reconstruct, restored=restored)
