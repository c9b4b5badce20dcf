"""Other correct ways to select and to compress as HubKV does."""

from typing import Any
from warnings import warn

import numpy as np
import torch

import reference
from spec_tests.variants.registry import register_variant

DEFAULTS = reference.HubSettings()


def shielded(scored, scope, sinks, recent, valid, keep=None, ratio: Any = None, clips=True):
    """Protect the ends of each row; shorten the window by one token until it fits."""
    lead = (slice(None),) * (scope == "model")  # layers come first, and share the budget
    axes = dict(head=1, layer=2, model=3)[scope]
    out, clipped = torch.zeros_like(scored.protected), 0
    for number in np.ndindex(scored.scores.shape[len(lead) : -2]):
        start = 0 if valid is None else int((~valid[number]).sum())
        place = (*lead, *number, slice(None), slice(start, None))
        others = scored.protected[place].clone()
        tokens = others.shape[-1]
        window = left = min(tokens, tokens // 50 if recent is None else recent)
        others[..., :sinks] = True
        others[..., tokens - window :] = False
        pools = others.flatten(-axes)
        if clips and others.numel():
            budget = reference.kept_count(pools.shape[-1], ratio) if keep is None else keep
            budget = budget[number] if isinstance(budget, torch.Tensor) else budget
            each = pools.shape[-1] // tokens  # entries of one token in a pool
            while left and (pools.sum(-1) + each * left > budget).any():
                left -= 1
        clipped = max(clipped, window - left)
        others[..., tokens - left :] = True
        out[place] = others
    if clipped:
        warn(f"recent window clipped by {clipped} tokens", stacklevel=3)
    return scored._replace(protected=out)


@register_variant("hubkv_select")
def by_select(
    keys, values, scored, *, keep=None, ratio=None, scope: Any = "model", refinement=DEFAULTS,
    sinks=4, recent=None, valid=None,
):  # fmt: skip
    """Protect the ends, then call `select`."""
    return reference.select(
        keys, values, shielded(scored, scope, sinks, recent, valid, keep, ratio),
        keep=keep, ratio=ratio, scope=scope, refinement=refinement,
        valid=valid,
    )  # fmt: skip


@register_variant("hubkv_compress")
def in_two_steps(
    keys, values, scored, *, keep=None, ratio=None, scope: Any = "model", refinement=DEFAULTS,
    sinks=4, recent=None, valid=None, store=None,
):  # fmt: skip
    """Select and evict; HEX keeps protected tokens outside its budget."""
    how: dict[str, Any] = dict(
        keep=keep, ratio=ratio, scope=scope, valid=valid, refinement=refinement
    )
    if store is None:
        how |= dict(sinks=sinks, recent=recent)
        kept = reference.hubkv_select(keys, values, scored, **how)
        return reference.evict(keys, values, kept)
    scored = shielded(scored, scope, sinks, recent, valid, clips=False)
    return reference.compress(keys, values, scored, store=store, **how)
