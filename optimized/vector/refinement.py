"""The step between scoring and selecting: whole batches, rows of one budget at a time."""

import torch
from jaxtyping import Float
from torch import Tensor

from optimized.vector._graphkv_refine import graphkv_refine
from optimized.vector.hubkv.locality import nms
from optimized.vector.hubkv.refine import hubkv_refine
from reference import compress_errors as refuse
from reference import errors
from reference.graphkv.refine import GraphSettings
from reference.hubkv.locality import NmsSettings
from reference.hubkv.refine import HubSettings
from reference.precision import widen
from reference.scorers.scored import Scored


def refine(
    scored: Scored,
    refinement: HubSettings | GraphSettings | NmsSettings | None = None,
    *,
    keep: int,
    ratio: float | None = None,
    keys: Float[Tensor, "*batch kv_heads tokens width"] | None = None,
    values: Float[Tensor, "*batch kv_heads tokens width"] | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    refuse.scored("scored", scored)
    refuse.refinement("refinement", refinement)
    errors.whole("keep", keep)
    if ratio is None:
        ratio = max(0.0, 1 - keep / max(1, scored.scores.shape[-1]))
    errors.fraction("ratio", ratio)
    scores, outside = widen(scored.scores), scored.protected
    if isinstance(refinement, HubSettings):
        return hubkv_refine(scores, ratio, outside, *refinement)
    if isinstance(refinement, NmsSettings):
        return nms(scores.masked_fill(outside, 0), *refinement)
    if isinstance(refinement, GraphSettings):
        errors.given("keys", keys, "where refinement is GraphSettings")
        assert keys is not None
        vectors = dict(queries=queries, values=values)
        settings = refinement._asdict()
        return graphkv_refine(scores, keys, keep, protected=outside, **vectors, **settings)
    errors.finite("scored.scores", scores)
    return scores.clone()


def refine_rows(
    scored: Scored,
    refinement: HubSettings | GraphSettings | NmsSettings | None,
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
    if not keep.numel():
        return torch.empty_like(widen(scores))
    different, which = settings.unique(dim=1, return_inverse=True)
    which, refined = which.view(keep.shape), torch.empty_like(widen(scores))
    for number, (kept, of) in enumerate(different.T.tolist()):
        gate = max(0.0, 1 - kept / max(1, of)) if ratio is None else ratio
        if isinstance(refinement, GraphSettings):
            refinement = refinement._replace(count=of, adaptive=False)
        rows = which == number if different.shape[1] > 1 else ...
        beside = {name: x[rows] for name, x in vectors.items()}
        part = Scored(scores[rows], outside[rows])
        refined[rows] = refine(part, refinement, keep=kept, ratio=gate, **beside)
    return refined
