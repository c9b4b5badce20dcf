"""GraphKV as a whole: one graph a layer, one kept set a layer, budgets layer by layer."""

from jaxtyping import Bool, Float, Int64
from torch import Tensor

from reference import compress_errors as refuse
from reference.compress import compress
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.graph import neighbour_count
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.kinds import Whole
from reference.scorers.scored import Scored


def graphkv_compress(
    keys: Float[Tensor, "*batch kv_heads tokens width"],
    values: Float[Tensor, "*batch kv_heads tokens width"],
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Int64[Tensor, " layers"] | None = None,
    ratio: float | None = None,
    length: Whole | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
    valid: Bool[Tensor, "*batch tokens"] | None = None,
    store: HexConfig | None = None,
) -> DenseCache | RaggedCache | HexCache:
    r"""Compress a cache as GraphKV does: spread decay over each layer's graph, keep the best.

    $$\mathbf{K}^l_s = \mathbf{K}^l[S_l], \quad \mathbf{V}^l_s = \mathbf{V}^l[S_l], \qquad
      |S_l| = k_l, \quad m = \min(m_0, \lfloor n \cdot 10^{-3} \rfloor)$$

    Args:
        keys: keys $K$, as the cache holds them.
        values: values $V$, of the shape of the keys.
        scored: what a scorer returned; scores at least 0. Unless the graphs are per head, a
            token is protected where any head protects it.
        refinement: settings of `graphkv_refine`, adaptive whatever they say; the number of
            neighbours $m_0$ has no default.
        keep: tokens $k_l$ that every head of layer $l$ keeps, or one number for each layer, the
            first axis: what PyramidKV and CAKE give. At most all tokens, padding included.
        ratio: removed share of a head's tokens, in [0, 1], instead of `keep`.
        length: tokens $n$ of the input, at least 0, whose thousands cap the neighbours; by
            default the real tokens of each row. From $1000\,m_0$ on, $m = m_0$.
        queries: queries, where edges compare them.
        valid: true at real tokens, false at left padding, as in `compress`.
        store: settings of HEX, as in `compress`; by default the rest is evicted.

    Returns:
        What `compress` returns. A layer keeps one set of tokens, the same for all its heads,
        unless the graphs are per head.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: what `compress` refuses, or `length` is negative.

    Source:
        GraphKV-4.1, GraphKV-6.1, GraphKV-6.2.

    Reading:
        E-G7, E-G8, E-G11: sources are a share of the layer's own budget; neighbours by thousands
        of tokens, so none below 1000; one graph and one kept set a layer.
    """
    refuse.only("refinement", refinement, GraphSettings)
    refuse.compression(keys, values, scored, "head", refinement, valid, store, queries)
    if length is None:
        refinement = refinement._replace(adaptive=True)
    else:
        count = neighbour_count(refinement.count, length)
        refinement = refinement._replace(count=count, adaptive=False)
    if isinstance(keep, Tensor):
        refuse.layer_budgets("keep", keep, scored.scores)
        pools = scored.scores.shape[: -2 if store is not None else -1]
        keep = keep.view(-1, *[1] * (len(pools) - 1)).expand(pools)
    protected = scored.protected
    if not refinement.per_head:
        protected = protected.any(-2, keepdim=True).expand(protected.shape)
    return compress(
        keys,
        values,
        Scored(scored.scores, protected),
        keep=keep,
        ratio=ratio,
        refinement=refinement,
        queries=queries,
        valid=valid,
        store=store,
    )
