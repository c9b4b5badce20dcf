"""One span of a HEX cache, compressed and restored without loops."""

from torch import Tensor

import reference
from optimized._composed import composed
from reference.hex import compress


def hex_mask(expander: Tensor, dynamic: Tensor, kv_heads: int) -> Tensor:
    static = expander.unflatten(1, (kv_heads, expander.shape[1] // kv_heads)).movedim(1, 0)
    return static | dynamic[..., None, :, None]


hex_compress = composed(reference.hex_compress)
hex_reconstruct = composed(reference.hex_reconstruct)
restored = composed(compress.restored)
