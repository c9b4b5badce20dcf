"""GraphKV as a whole: one graph a layer, one kept set a layer, budgets layer by layer."""

from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference.compress import compress, of_one_dtype, select, storable
from reference.contract.enforce import requires
from reference.contract.preconditions import budget_fits_pools, left_padded
from reference.contract.types import Ratio, Whole
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.graph import neighbour_count
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache, compressible_length
from reference.hex.presets import HexConfig
from reference.refinement import require_finite_scores, vectors_fit_refinement
from reference.scorers.scored import Scored


def layered(
    scored: Scored, keep: int | Tensor | None, ratio: float | None, store: HexConfig | None
) -> None:
    """Refuse both or neither of `keep` and `ratio`, and a `keep` that does not fit the layers."""
    pool, layers = scored.scores.shape[-1], scored.scores.shape[:-2]
    if store is not None:
        pool = compressible_length(store, pool)
    if isinstance(keep, Tensor):
        if not layers:
            shape = tuple(scored.scores.shape)
            raise ValueError(
                f"scored.scores must have at least 3 axes where keep is a tensor, got shape {shape}"
            )
        if keep.ndim == 1:
            layers = layers[:1]
    if store is None or keep is not None or ratio is not None:
        budget_fits_pools(keep, ratio, pool, layers)


@requires(left_padded, layered, vectors_fit_refinement, require_finite_scores)
def graphkv_select(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Int64[Tensor, "layers *rows"] | None = None,
    ratio: Ratio | None = None,
    length: Whole | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
) -> Bool[Tensor, "*batch kv_heads tokens"]:
    r"""Mark what GraphKV keeps: spread decay over each layer's graph, keep the best.

    $$|S_l| = k_l, \qquad m = \min(m_0, \lfloor n \cdot 10^{-3} \rfloor)$$

    Args:
        keys: keys $K$, as the cache holds them.
        values: values $V$.
        scored: what a scorer returned; scores at least 0. Unless the graphs are per head, a
            token is protected where any head protects it.
        refinement: settings of `graphkv_refine`, adaptive whatever they say; the number of
            neighbours $m_0$ has no default.
        keep: tokens $k_l$ that every head of layer $l$ keeps, or one number for each layer, the
            first axis, or for each row of each: what PyramidKV and CAKE give. At most all tokens,
            padding included.
        ratio: removed share of a head's tokens, instead of `keep`.
        length: tokens $n$ of the input, whose thousands cap the neighbours; by default the real
            tokens of each row. From $1000\,m_0$ on, $m = m_0$.
        queries: queries, where edges compare them.
        valid: true at real tokens, false at left padding, as in `select`.

    Returns:
        The mask of $S$. A layer keeps one set of tokens, the same for all its heads, unless the
        graphs are per head.

    Raises:
        ValueError: what `select` refuses.

    Source:
        GraphKV-4.1, GraphKV-6.1, GraphKV-6.2. In words (§4.3, §6.2): "determine the final $k_l$
        tokens", "the minimum between a predefined value and the query length". The length counts in
        thousands (Fig. 5); rounding down is ours (E-G8).

    Reading:
        E-G7, E-G8, E-G11: sources are a share of the layer's own budget; neighbours by thousands
        of tokens, so none below 1000; one graph and one kept set a layer.
    """
    refinement, scored = of_layers(refinement, scored, length)
    keep = of_pools(keep, scored.scores.shape[:-1])
    return select(
        keys, values, scored, keep=keep, ratio=ratio, refinement=refinement, queries=queries,
        valid=valid,
    )  # fmt: skip


@requires(
    left_padded, layered, vectors_fit_refinement, require_finite_scores, storable, of_one_dtype
)
def graphkv_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Int64[Tensor, "layers *rows"] | None = None,
    ratio: Ratio | None = None,
    length: Whole | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    r"""Compress a cache as GraphKV does, to what `graphkv_select` marks.

    $$\mathbf{K}^l_s = \mathbf{K}^l[S_l], \qquad \mathbf{V}^l_s = \mathbf{V}^l[S_l]$$

    Args:
        keys: keys $K$, as the cache holds them.
        values: values $V$.
        scored: what a scorer returned; scores at least 0, as in `graphkv_select`.
        refinement: settings of `graphkv_refine`, as in `graphkv_select`.
        keep: tokens $k_l$ that every head of layer $l$ keeps, as in `graphkv_select`.
        ratio: removed share of a head's tokens, instead of `keep`.
        length: tokens $n$ of the input, as in `graphkv_select`.
        queries: queries, where edges compare them.
        valid: true at real tokens, false at left padding, as in `select`.
        store: settings of HEX, as in `compress`; by default the rest is evicted.

    Returns:
        What `compress` returns.

    Raises:
        ValueError: what `compress` refuses.

    Source:
        GraphKV-4.1, GraphKV-6.1, GraphKV-6.2. In words (§4.1): "identify compressed sub-matrices
        $\mathbf{K}_s^l, \mathbf{V}_s^l \in \mathbb{R}^{k_l \times d}$". With `per_head` each head
        has rows of its own (E-G11).

    Reading:
        E-G7, E-G8, E-G11: as in `graphkv_select`.
    """
    refinement, scored = of_layers(refinement, scored, length)
    keep = of_pools(keep, scored.scores.shape[: -1 if store is None else -2])
    return compress(
        keys, values, scored, keep=keep, ratio=ratio, refinement=refinement, queries=queries,
        valid=valid, store=store,
    )  # fmt: skip


def of_layers(
    refinement: GraphSettings, scored: Scored, length: int | None
) -> tuple[GraphSettings, Scored]:
    """Cap the neighbours by an input's length, and let a layer protect what any head does."""
    refinement = refinement._replace(adaptive=length is None)
    if length is not None:
        refinement = refinement._replace(count=neighbour_count(refinement.count, length))
    if refinement.per_head:
        return refinement, scored
    shared = scored.protected.any(-2, keepdim=True).expand(scored.protected.shape)
    return refinement, scored._replace(protected=shared)


def of_pools(keep: int | Tensor | None, pools: tuple[int, ...]) -> int | Tensor | None:
    """Give each pool the budget of its layer, the first axis, or of its row there."""
    if isinstance(keep, Tensor):
        return keep.reshape(*keep.shape, *[1] * (len(pools) - keep.ndim)).expand(pools)
    return keep
