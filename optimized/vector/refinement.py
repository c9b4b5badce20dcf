"""The step between scoring and selecting: whole batches, rows of one budget at a time."""

import torch
from torch import Tensor

from optimized.vector.graphkv.refine import graphkv_refine
from optimized.vector.hubkv.locality import nms
from optimized.vector.hubkv.refine import hubkv_refine
from reference.graphkv.refine import GraphSettings, held
from reference.hubkv.locality import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.refinement import Refinement
from reference.scorers.scored import Scored

EDGES = 1 << 21
"""Edges of graphs at one time: as many as a CPU's cache holds, and 256 times as many on a GPU."""


def refine(
    scored: Scored,
    refinement: Refinement | None = None,
    *,
    keep: int,
    ratio: float | None = None,
    keys: Tensor | None = None,
    values: Tensor | None = None,
    queries: Tensor | None = None,
) -> Tensor:
    scores, outside = widen(scored.scores), scored.protected
    if isinstance(refinement, HubSettings):
        if ratio is None:
            ratio = max(0.0, 1 - keep / max(1, scores.shape[-1]))
        return hubkv_refine(scores, ratio, outside, *refinement)
    if isinstance(refinement, NmsSettings):
        return nms(scores.masked_fill(outside, 0), *refinement)
    if isinstance(refinement, GraphSettings):
        assert keys is not None
        held(keep, outside, refinement.per_head, refinement.exclude_window)
        vectors = dict(queries=queries, values=values)
        settings = refinement._asdict()
        return graphkv_refine(scores, keys, keep, protected=outside, **vectors, **settings)
    return scores.clone()


def refine_rows(
    scored: Scored,
    refinement: Refinement | None,
    vectors: dict[str, Tensor],
    keep: Tensor,
    shares: tuple[Tensor, Tensor],
    ratio: float | None,
    padding: Tensor,
) -> Tensor:
    """Refine rows, the leading axes, each by its own budget.

    `keep` is GraphKV's budget of each row, `shares` the two numbers whose quotient HubKV's gate
    takes for the share kept, unless the `ratio` is given; `padding` how many tokens of a row are
    none.
    """
    scores, outside = scored
    if isinstance(refinement, HubSettings) and ratio is None:
        settings = torch.stack(shares).view(2, -1)
    elif isinstance(refinement, GraphSettings):
        # where the window comes off the budget, padding counts as window
        budget = keep + padding if refinement.exclude_window else keep
        tokens = scores.shape[-1]
        most = (tokens - padding) // 1000 if refinement.adaptive else torch.full_like(keep, tokens)
        counts = most.clamp(max=min(refinement.count, tokens))
        settings = torch.stack([budget, counts]).view(2, -1)
    else:
        return refine(scored, refinement, keep=0, ratio=ratio)
    refined = torch.empty_like(widen(scores))
    if not scores.numel():
        return refined
    different, which = settings.unique(dim=1, return_inverse=True)
    lead = scores.shape[:-2]
    which = which.view((*keep.shape, *[1] * (len(lead) - keep.ndim))).expand(lead)
    for number, (kept, of) in enumerate(different.T.tolist()):
        gate = max(0.0, 1 - kept / max(1, of)) if ratio is None else ratio
        together = lead.numel()
        if isinstance(refinement, GraphSettings):
            refinement = refinement._replace(count=of, adaptive=False)
            room = EDGES if scores.device.type == "cpu" else 256 * EDGES
            together = max(1, room // max(1, kept * scores.shape[-2:].numel()))
        same = (which == number).nonzero()
        for rows in same.split(together):
            place = rows.unbind(-1) if len(rows) < lead.numel() else ...
            beside = {name: x[place] for name, x in vectors.items()}
            part = Scored(scores[place], outside[place])
            refined[place] = refine(part, refinement, keep=kept, ratio=gate, **beside)
    return refined
