"""Another correct way to decode."""

import torch
import torch.nn.functional as F

import reference
from spec_tests.variants.registry import register_variant


@register_variant("hex_decode")
def token_by_token(cache, queries, keys, values):
    """Add each token to the buffer, attend with its query, and then append it."""
    outputs = [queries[..., :0, :]]
    for t in range(keys.shape[-2]):
        query, key, value = (x[..., t : t + 1, :] for x in (queries, keys, values))
        entered = cache._replace(
            residual_keys=torch.cat([cache.residual_keys, key], -2),
            residual_values=torch.cat([cache.residual_values, value], -2),
            residual_mass=F.pad(cache.residual_mass, (0, 1)),
        )
        outputs.append(reference.hex_attention(query, entered).output)
        cache = reference.hex_append(cache, query, key, value)
    return reference.HexDecoded(torch.cat(outputs, -2), cache)
