"""Other correct ways to refine by a graph."""

from typing import Any

import numpy as np
import torch

import reference
from spec_tests.variants.registry import register_variant


@register_variant("concatenate_heads")
def by_joining(vectors):
    """Join the heads along the last axis."""
    return torch.cat(vectors.unbind(-3), -1)


@register_variant("concatenate_heads", "values")
def by_einops(vectors):
    """Swap the axes of heads and tokens, and reshape."""
    rows = vectors.transpose(-3, -2)
    return rows.reshape(*rows.shape[:-2], rows.shape[-2] * rows.shape[-1])


@register_variant("graphkv_refine")
def graph_by_graph(
    scores, keys, keep, count, protected=None, *, queries=None, values=None, kind="kk",
    fraction=0.3, rounds=1, strength=1.0, rule="product", signal="decay", per_head=False,
    spare_sources=False, clamp=False, exclude_window=False, adaptive=False,
):  # fmt: skip
    """Loop over graphs: of heads, or of rows that join all heads."""
    if not scores.numel():
        return scores.clone()
    settings: Any = reference.GraphSettings
    knobs = settings(
        count, kind, fraction, rounds, strength, rule, signal, per_head, spare_sources, clamp,
        exclude_window, adaptive,
    )  # fmt: skip
    aside = torch.zeros_like(scores, dtype=torch.bool) if protected is None else protected
    vectors = dict(keys=keys, queries=queries, values=values)
    if queries is not None and queries.shape != keys.shape:
        groups = queries.to(torch.promote_types(queries.dtype, torch.float32))
        vectors["queries"] = groups.unflatten(-3, (keys.shape[-3], -1)).mean(-3)
    vectors = {name: x for name, x in vectors.items() if x is not None}
    wide = scores.to(torch.promote_types(scores.dtype, torch.float32))
    if not knobs.per_head:
        wide, aside = wide.mean(-2, keepdim=True), aside.any(-2, keepdim=True)
        vectors = {
            name: reference.concatenate_heads(x)[..., None, :, :] for name, x in vectors.items()
        }
    out = torch.empty_like(wide)
    for graph in np.ndindex(wide.shape[:-1]):
        ends = {name: x[graph] for name, x in vectors.items()}
        out[graph] = of_one(wide[graph], aside[graph], ends, keep, knobs)
    return out.expand(scores.shape).to(scores.dtype).contiguous()


def of_one(score, aside, vectors, keep, knobs):
    """Refine the scores of one graph."""
    window = int(aside.sum()) if knobs.exclude_window else 0
    sources = min(reference.source_count(keep, knobs.fraction, window), int((~aside).sum()))
    chosen = reference.source_tokens(score, sources, aside)
    edges = reference.edges(**vectors, sources=chosen, kind=knobs.kind, clamp=knobs.clamp)
    most = min(knobs.count, len(score) // 1000) if knobs.adaptive else knobs.count
    reached = reference.neighbours(edges, chosen, most, aside, knobs.spare_sources)
    if knobs.signal == "evict":
        return score.masked_fill(reached.any(0) & (knobs.rounds > 0), -torch.inf)
    edges = edges if knobs.signal == "decay" else -edges
    rule = knobs.rule if knobs.signal == "decay" else "product"
    return reference.decay(score, edges, reached, knobs.rounds, knobs.strength, rule)
