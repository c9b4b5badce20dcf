"""HubKV as a whole: any scorer's scores, one budget for the model, sinks and a recent window."""

from warnings import warn

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.compress import (
    compress,
    fits_pools,
    fits_scope,
    of_one_dtype,
    row_budgets,
    select,
    storable,
    unpadded_row_indices,
)
from reference.contract.enforce import requires
from reference.contract.preconditions import AXES, left_padded
from reference.contract.types import Ratio, Scope, Whole
from reference.evict import DenseCache, RaggedCache
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.hubkv.refine import HubSettings
from reference.refinement import require_finite_scores
from reference.scorers.scored import Scored


@requires(fits_scope, left_padded, fits_pools, require_finite_scores)
def hubkv_select(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: Ratio | None = None,
    scope: Scope = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: Whole = 4,
    recent: Whole | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
) -> Bool[Tensor, "*batch kv_heads tokens"]:
    r"""Mark what HubKV keeps: protect the ends, refine the rest, keep the best.

    $$S = \mathrm{TopB}(z), \qquad z = \mathrm{HubKV}(s, P), \qquad
      P = P_{\mathrm{scorer}} \cup \mathcal{P}_{\mathrm{sink}} \cup \mathcal{P}_{\mathrm{recent}}$$

    Args:
        keys: keys $K$; the layers come first where `scope` is `"model"`.
        values: values $V$.
        scored: what a scorer returned; scores at least 0.
        keep: budget of every pool, as in `select`.
        ratio: removed share $r$, instead of `keep`; the gate's ratio too.
        scope: `"model"` as the paper's base systems rank, or `"layer"`, or `"head"`.
        refinement: settings of `hubkv_refine`.
        sinks: how many tokens at the start of a row are protected.
        recent: how many at its end; by default $\lfloor 0.02\,T \rfloor$ of its $T$ real tokens.
        valid: true at real tokens, false at left padding, as in `select`.

    Returns:
        The mask of $S$. Where the protected tokens of a row exceed a budget its recent window is
        clipped to what fits beside the others, whoever protects it, and a warning says so.

    Raises:
        ValueError: what `select` refuses.

    Source:
        HubKV-1, HubKV-11, HubKV-13. In words (§3.3): "HubKV keeps the $B$ highest entries under
        $\mathbf{z}$". Sinks and window are those of A.1 (E-U13).

    Reading:
        E-U13, E-U14: the same sinks and window for every base scorer; the window, not the
        budget, gives way.
    """
    shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid)
    return select(
        keys, values, shielded, keep=keep, ratio=ratio, scope=scope, refinement=refinement,
        valid=valid,
    )  # fmt: skip


@requires(fits_scope, left_padded, fits_pools, require_finite_scores, storable, of_one_dtype)
def hubkv_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    *,
    keep: int | Int64[Tensor, "*pools"] | None = None,
    ratio: Ratio | None = None,
    scope: Scope = "model",
    refinement: HubSettings = HubSettings(),  # noqa: B008
    sinks: Whole = 4,
    recent: Whole | None = None,
    valid: Bool[Tensor, "*rows tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    r"""Compress a cache as HubKV does, to what `hubkv_select` marks.

    $$(K, V, s, P) \;\xrightarrow{\text{HubKV}}\; S
      \;\xrightarrow{\text{store}}\; (K_S, V_S) \;\text{ or }\; (\widehat K, \widehat V)$$

    Args:
        keys: keys $K$; the layers come first where `scope` is `"model"`.
        values: values $V$.
        scored: what a scorer returned; scores at least 0.
        keep: budget of every pool, as in `hubkv_select`.
        ratio: removed share $r$, instead of `keep`; the gate's ratio too.
        scope: `"model"` as the paper's base systems rank, or `"layer"`, or `"head"`.
        refinement: settings of `hubkv_refine`.
        sinks: how many tokens at the start of a row are protected, as in `hubkv_select`.
        recent: how many at its end, as in `hubkv_select`.
        valid: true at real tokens, false at left padding, as in `select`.
        store: settings of HEX, as in `compress`; by default the rest is evicted.

    Returns:
        What `compress` returns. HEX keeps protected tokens beside its budget, so that no window
        is clipped there.

    Raises:
        ValueError: what `compress` refuses.

    Source:
        HubKV-1, HubKV-11, HubKV-13. In words (§3.3): "KV pairs with the lowest calibrated scores
        are evicted until the target compression ratio is reached". Storing the rest is ours.

    Reading:
        E-U13, E-U14: as in `hubkv_select`.
    """
    shielded = with_ends(scored, keep, ratio, scope, sinks, recent, valid, store)
    return compress(
        keys, values, shielded, keep=keep, ratio=ratio, scope=scope, refinement=refinement,
        valid=valid, store=store,
    )  # fmt: skip


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
    """Protect both ends of each row; the window gives way where they must fit into a budget."""
    protected, clipped = torch.zeros_like(scored.protected), 0
    for number, index in unpadded_row_indices(scored.scores, scope, valid):
        mine = scored.protected[index]
        tokens = mine.shape[-1]
        window = left = min(tokens, tokens // 50 if recent is None else recent)
        position = torch.arange(tokens, device=mine.device)
        others = (mine | (position < sinks)) & (position < tokens - window)
        if store is None and mine.numel():
            taken = others.flatten(-AXES[scope])
            spare = row_budgets(keep, ratio, number, taken) - taken.sum(-1)
            left = min(window, max(0, int(spare.min()) // (taken.shape[-1] // tokens)))
        clipped = max(clipped, window - left)
        protected[index] = others | (position >= tokens - left)
    tell(clipped)
    return scored._replace(protected=protected)


def tell(clipped: int) -> None:
    """Warn the caller of the package that a window gave way."""
    if clipped:
        warn(
            f"recent window clipped by {clipped} tokens: the budget holds no more beside the other "
            "protected ones",
            stacklevel=5,
        )
