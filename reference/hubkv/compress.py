"""HubKV as a whole: any scorer's scores, one budget for the model, sinks and a recent window."""

from itertools import product
from warnings import warn

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference import compress_errors as refuse
from reference import errors, selection_errors
from reference.compress import compress, row_budgets
from reference.evict import DenseCache, RaggedCache
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.hubkv.refine import HubSettings
from reference.retain import AXES
from reference.scorers.scored import Scored


def hubkv_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: float | None = None,
    scope: str = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: int = 4,
    recent: int | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    r"""Compress a cache as HubKV does: protect the ends, refine the rest, keep the best.

    $$S = \mathrm{TopB}(z), \qquad z = \mathrm{HubKV}(s, P), \qquad
      P = P_{\mathrm{scorer}} \cup \mathcal{P}_{\mathrm{sink}} \cup \mathcal{P}_{\mathrm{recent}}$$

    Args:
        keys: keys $K$; the layers come first where `scope` is `"model"`.
        values: values $V$, of the shape of the keys.
        scored: what a scorer returned; scores at least 0.
        keep: budget of every pool, as in `compress`.
        ratio: removed share $r$, in [0, 1], instead of `keep`; the gate's ratio too.
        scope: `"model"` as the paper's base systems rank, or `"layer"`, or `"head"`.
        refinement: settings of `hubkv_refine`.
        sinks: how many tokens at the start of a row are protected, at least 0.
        recent: how many at its end, at least 0; by default $\lfloor 0.02\,T \rfloor$ of its $T$
            real tokens.
        valid: true at real tokens, false at left padding, as in `compress`.
        store: settings of HEX, as in `compress`; by default the rest is evicted.

    Returns:
        What `compress` returns. Where the protected tokens of a row exceed a budget its recent
        window is clipped to what fits beside the others, and a warning says so.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: what `compress` refuses, or `sinks` or `recent` is negative.

    Source:
        HubKV-1, HubKV-11, HubKV-13.

    Reading:
        E-U13, E-U14: the same sinks and window for every base scorer; the window, not the
        budget, gives way.
    """
    refuse.only("refinement", refinement, HubSettings)
    refuse.compression(keys, values, scored, scope, refinement, valid, store, None)
    errors.whole("sinks", sinks)
    if recent is not None:
        errors.whole("recent", recent)
    before = scored.protected
    if scope == "model":
        before = before.movedim(0, -3)
    rows = before.shape[: -2 if scope == "head" else -AXES[scope]]
    real = before.new_ones(*rows, before.shape[-1]) if valid is None else valid
    pools = before.flatten(-AXES[scope])
    if store is None:
        selection_errors.budget(keep, ratio, pools.shape[-1], pools.shape[:-1])
    protected = torch.zeros_like(before)
    clipped = 0
    for row in product(*map(range, rows)):
        start = int((~real[row]).sum())
        mine = before[row][..., start:]
        tokens = mine.shape[-1]
        window = min(tokens, tokens // 50 if recent is None else recent)
        position = torch.arange(tokens, device=keys.device)
        others = (mine | (position < sinks)) & (position < tokens - window)
        left = window
        if store is None and mine.numel():  # HEX keeps protected tokens beside its budget
            taken = others.flatten(-AXES[scope])
            room = row_budgets(keep, ratio, row, taken) - taken.sum(-1)
            left = min(window, max(0, int(room.min()) // (taken.shape[-1] // tokens)))
        clipped = max(clipped, window - left)
        protected[row][..., start:] = others | (position >= tokens - left)
    if clipped:
        warn(
            f"recent window clipped by {clipped} tokens: the budget holds no more beside the other "
            "protected ones",
            stacklevel=2,
        )
    if scope == "model":
        protected = protected.movedim(-3, 0)
    return compress(
        keys,
        values,
        scored._replace(protected=protected),
        keep=keep,
        ratio=ratio,
        scope=scope,
        refinement=refinement,
        valid=valid,
        store=store,
    )
