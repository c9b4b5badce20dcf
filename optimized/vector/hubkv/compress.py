"""HubKV end to end, with the sinks and recent tokens of all rows protected at once."""

import torch
from torch import Tensor

from optimized.vector.compress import compress, pool_budgets, rows_of, select
from reference.contract.enforce import may_read_values
from reference.contract.preconditions import AXES
from reference.evict import DenseCache, RaggedCache
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.hubkv.compress import tell
from reference.hubkv.refine import HubSettings
from reference.scorers.scored import Scored


def with_ends(
    scored: Scored,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    sinks: int,
    recent: int | None,
    valid: Tensor | None,
    store: HexConfig | None = None,
) -> Scored:
    rows = rows_of(scored, scope, valid, {})
    scores, protected = rows.scored
    length, pool = scores.shape[-1], scores.shape[-AXES[scope] :].numel()
    between = [1] * (scores.ndim - rows.real.ndim)
    first = (length - rows.real).view(*rows.real.shape, *between)
    position = torch.arange(length, device=scores.device)
    window = left = rows.real // 50 if recent is None else rows.real.clamp(max=recent)
    ends = length - window.view(first.shape)
    others = (protected | (position < first + sinks)) & (position >= first) & (position < ends)
    if store is None and scores.numel():
        spare = pool_budgets(keep, ratio, rows, scope)
        spare = spare - others.flatten(-AXES[scope]).sum(-1)
        spare = spare.div(pool // length, rounding_mode="floor")
        spare = spare.amin(-1) if scope == "head" else spare
        left = torch.minimum(window, spare.clamp(min=0))
        if may_read_values(left):
            tell(int((window - left).amax()))
    protected = others | (position >= length - left.view(first.shape))
    return scored._replace(protected=protected.movedim(-3, 0) if scope == "model" else protected)


def hubkv_select(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    refinement: HubSettings,
    sinks: int,
    recent: int | None,
    valid: Tensor | None,
) -> Tensor:
    shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid)
    return select(
        keys, values, shielded, keep=keep, ratio=ratio, scope=scope, refinement=refinement,
        queries=None, valid=valid,
    )  # fmt: skip


def hubkv_compress(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    scope: str,
    refinement: HubSettings,
    sinks: int,
    recent: int | None,
    valid: Tensor | None,
    store: HexConfig | None,
) -> DenseCache | RaggedCache | HexCache:
    shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)
    return compress(
        keys, values, shielded, keep=keep, ratio=ratio, scope=scope, refinement=refinement,
        queries=None, valid=valid, store=store,
    )  # fmt: skip
