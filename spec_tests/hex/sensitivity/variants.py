"""Another correct way to compare settings on a stream."""

import torch

import reference
from spec_tests.variants.registry import register_variant


@register_variant("sensitivity")
def with_running_means(queries, keys, values, prompt, configs):
    """Sum the deviations, and divide once."""
    rows = []
    for config in configs:
        start = [x[..., :prompt, :] for x in (queries, keys, values)]
        cache = reference.hex_prefill(*start, config=config)
        total, count = 0.0, 0
        for t in range(prompt, keys.shape[-2]):
            query, *new = (x[..., [t], :] for x in (queries, keys, values))
            past_keys, past_values = reference.hex_read(cache)
            held = torch.cat([past_keys, new[0]], -2), torch.cat([past_values, new[1]], -2)
            exact = keys[..., : t + 1, :], values[..., : t + 1, :]
            off = reference.attention_error(query, *exact, *held)
            total, count = total + off.double().sum(), count + off.numel()
            cache = reference.hex_append(cache, query, *new)
        size = sum(reference.hex_bytes(cache))
        both = 2 * keys.numel() * keys.element_size()
        kind = torch.promote_types(values.dtype, torch.float32)
        error = torch.as_tensor(total / count).to(kind)
        rows.append(reference.Sensitivity(config, error, size, 100 * size / both))
    return tuple(rows)
