"""Other correct ways to compare the tokens of a span that two selections keep."""

from typing import Any

import numpy as np

import reference
from spec_tests.numpy_adapter import among_tensors
from spec_tests.variants.registry import register_variant


@register_variant("retained_chains")
def by_means(base, refined, span):
    """Average over heads, then over the span."""
    before, after = (
        mask[..., span].reshape(-1, int(span.sum())).double().mean(0) for mask in (base, refined)
    )
    change = after.mean() - before.mean()
    parts = before.mean(), after.mean(), change, (before != after).double().mean()
    return reference.ChainDiagnostic(*(part.float() for part in parts))


record: Any = reference.ChainDiagnostic  # tensors, or arrays


@register_variant("retained_chains", "values")
@among_tensors
def by_numpy(base, refined, span):
    """Count the places of each token, in NumPy."""
    axes = tuple(range(base.ndim - 1))
    before, after = base.sum(axes)[span], refined.sum(axes)[span]
    heads = np.prod(base.shape[:-1])
    parts = before.mean() / heads, after.mean() / heads, (after - before).mean() / heads
    return record(*map(np.float32, (*parts, (before != after).mean())))
