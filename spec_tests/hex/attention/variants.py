"""Other correct ways to attend to a HEX cache."""

import torch
import torch.nn.functional as F

import reference
from reference.precision import widest
from spec_tests.accuracy import cast
from spec_tests.variants.registry import register_variant


def read_in_widest_dtype(cache):
    """Return the restored entries in a dtype wide enough that none is rounded."""
    exact = widest(cache.residual_keys, *(block.key_steps for block in cache.blocks))
    held = [
        block._replace(kept_keys=block.kept_keys.to(exact), kept_values=block.kept_values.to(exact))
        for block in cache.blocks
    ]
    return reference.hex_read(
        cache._replace(
            blocks=tuple(held),
            residual_keys=cache.residual_keys.to(exact),
            residual_values=cache.residual_values.to(exact),
        )
    )


def seen_by(queries, tokens, valid, causal):
    """Return which tokens each query sees, `[*batch, 1, queries, tokens]`."""
    count = queries.shape[-2]
    seen = torch.ones(count, tokens, dtype=torch.bool, device=queries.device)
    seen = seen.tril(tokens - count) if causal else seen
    return seen if valid is None else seen & valid[..., None, None, :]


@register_variant("hex_attention")
def by_sdpa(queries, cache, valid=None, causal=True, scale=None, mass=False):
    """Attend to the restored entries with PyTorch's attention; compute the mass by a softmax."""
    keys, values = read_in_widest_dtype(cache)
    exact = widest(queries, keys)
    group = queries.shape[-3] // max(1, keys.shape[-3])
    keys, values = (x.to(exact).repeat_interleave(group, -3) for x in (keys, values))
    seen = seen_by(queries, keys.shape[-2], valid, causal)
    blind = ~seen.any(-1, keepdim=True)
    output = F.scaled_dot_product_attention(
        queries.to(exact), keys, values, attn_mask=seen | blind, scale=scale
    ).masked_fill(blind, 0)
    logits = queries.to(exact) @ keys.mT * (queries.shape[-1] ** -0.5 if scale is None else scale)
    weights = logits.masked_fill(~seen, -torch.inf).softmax(-1).masked_fill(blind, 0)
    drawn = weights.sum((-3, -2))
    return reference.HexAttention(output.to(queries.dtype), drawn if mass else None)


@register_variant("hex_attention")
def block_by_block(queries, cache, valid=None, causal=True, scale=None, mass=False):
    """Attend to one block after another, with an online softmax."""
    keys, values = read_in_widest_dtype(cache)
    exact = widest(queries, keys)
    group = queries.shape[-3] // max(1, keys.shape[-3])
    keys, values = (x.to(exact).repeat_interleave(group, -3) for x in (keys, values))
    seen = seen_by(queries, keys.shape[-2], valid, causal)
    scaled = queries.to(exact) * (queries.shape[-1] ** -0.5 if scale is None else scale)
    largest = scaled.new_full(queries.shape[:-1], -1e30)
    total, mixed, logits = torch.zeros_like(largest), torch.zeros_like(scaled), []
    for start in range(0, keys.shape[-2], 5):
        some = slice(start, start + 5)
        here = (scaled @ keys[..., some, :].mT).masked_fill(~seen[..., some], -torch.inf)
        higher = torch.maximum(largest, here.amax(-1))
        fade, powers = (largest - higher).exp(), (here - higher[..., None]).exp()
        total = total * fade + powers.sum(-1)
        mixed = mixed * fade[..., None] + powers @ values[..., some, :]
        largest = higher
        logits.append(here)
    norm = (total + (total == 0))[..., None]
    output = (mixed / norm).to(queries.dtype)
    weights = [(here - largest[..., None]).exp() / norm for here in logits]
    drawn = torch.cat([w.sum((-3, -2)) for w in weights], -1) if weights else keys.new_zeros(
        *keys.shape[:-3], 0
    )  # fmt: skip
    return reference.HexAttention(output, drawn if mass else None)


@register_variant("hex_attention")
def in_wider_numbers(queries, cache, valid=None, causal=True, scale=None, mass=False):
    """Cast queries and cache to float64, and round the result."""
    exact = widest(queries, cache.residual_keys)
    wide = cast(cache, torch.float64)
    found = by_sdpa(queries.double(), wide, valid, causal, scale, mass)
    drawn = None if found.mass is None else found.mass.to(exact)
    return reference.HexAttention(found.output.to(queries.dtype), drawn)
