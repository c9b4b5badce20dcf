"""Another trainer, with other random numbers."""

import torch
from torch import nn

from reference import GateWeights, fastkvzip, fastkvzip_loss
from spec_tests.variants.registry import register_variant


class Gate(nn.Module):
    """Weights that start uniform, from one stream of torch."""

    def __init__(self, hidden, kv_heads, group, dim, learned, seed, dtype, spread):
        super().__init__()
        generator = torch.Generator().manual_seed(seed + 1)
        sizes = dict(
            query=(kv_heads, group, dim, hidden), query_bias=(kv_heads, group, dim),
            query_scale=(dim,), key=(kv_heads, dim, hidden), key_scale=(dim,),
            learned=(kv_heads, learned, dim), bias=(kv_heads, group),
        )  # fmt: skip
        for name, size in sizes.items():
            if name in ("query", "query_bias", "key"):
                start = torch.empty(size, dtype=dtype)
                start.uniform_(-(hidden**-0.5), hidden**-0.5, generator=generator)
            elif name == "learned":
                start = spread * torch.randn(size, generator=generator).to(dtype)
            else:
                start = torch.full(size, float(name.endswith("scale")), dtype=dtype)
            setattr(self, name, nn.Parameter(start))

    def weights(self):
        """Return the parameters."""
        return GateWeights(*self.parameters())

    def forward(self, hidden, epsilon=1e-6, valid=None):
        """Return the scores."""
        return fastkvzip(hidden, self.weights(), epsilon=epsilon, valid=valid).scores


@register_variant("FastKVzipGate")
def gate(hidden, kv_heads, group, dim=16, learned=16, seed=0, dtype=torch.float32, spread=0.0):
    """Return a gate of other random numbers."""
    return Gate(hidden, kv_heads, group, dim, learned, seed, dtype, spread)


@register_variant("train_fastkvzip")
def by_hand(
    hidden, targets, group, steps=5000, rate=0.2, momentum=0.9, sample=1000, dim=16, learned=16,
    seed=0, epsilon=1e-6, valid=None, spread=0.0,
):  # fmt: skip
    """Update each weight by its gradient without an optimiser; take tokens from the end."""
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    mask = torch.ones(hidden.shape[:-1], dtype=torch.bool) if valid is None else valid
    x, wanted = hidden[mask].to(dtype), targets.movedim(-2, 0)[:, mask].to(dtype)
    model = Gate(x.shape[-1], targets.shape[-2], group, dim, learned, seed, dtype, spread)
    weights = [part.detach() for part in model.parameters()]
    speed = [torch.zeros_like(part) for part in weights]
    generator, left = torch.Generator().manual_seed(seed), []
    for i in range(steps):
        size = min(sample, len(x))
        if len(left) < size:
            left = torch.randperm(len(x), generator=generator).tolist()
        drawn, left = left[-size:], left[:-size]
        with torch.enable_grad():
            leaves = [part.requires_grad_() for part in weights]
            scores = fastkvzip(x[drawn], GateWeights(*leaves), epsilon=epsilon).scores
            slopes = torch.autograd.grad(fastkvzip_loss(scores, wanted[:, drawn]), leaves)
        late = 0.25 if i >= 0.75 * steps else 0.5 if i >= 0.5 * steps else 1.0
        pace = i / 100 if i < steps / 100 else late
        speed = [momentum * v + g for v, g in zip(speed, slopes, strict=True)]
        weights = [(w - pace * rate * v).detach() for w, v in zip(weights, speed, strict=True)]
    return GateWeights(*weights)
