"""GraphKV end to end, by vectorised selection and compression."""

from torch import Tensor

from optimized.vector.compress import compress, select
from reference.evict import DenseCache, RaggedCache
from reference.graphkv.compress import of_layers, of_pools
from reference.graphkv.refine import GraphSettings
from reference.hex.cache import HexCache
from reference.hex.presets import HexConfig
from reference.scorers.scored import Scored


def graphkv_select(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    length: int | None,
    queries: Tensor | None,
    valid: Tensor | None,
) -> Tensor:
    refinement, scored = of_layers(refinement, scored, length)
    keep = of_pools(keep, scored.scores.shape[:-1])
    return select(
        keys, values, scored, keep=keep, ratio=ratio, scope="head", refinement=refinement,
        queries=queries, valid=valid,
    )  # fmt: skip


def graphkv_compress(
    keys: Tensor,
    values: Tensor,
    scored: Scored,
    refinement: GraphSettings,
    *,
    keep: int | Tensor | None,
    ratio: float | None,
    length: int | None,
    queries: Tensor | None,
    valid: Tensor | None,
    store: HexConfig | None,
) -> DenseCache | RaggedCache | HexCache:
    refinement, scored = of_layers(refinement, scored, length)
    keep = of_pools(keep, scored.scores.shape[: -1 if store is None else -2])
    return compress(
        keys, values, scored, keep=keep, ratio=ratio, scope="head", refinement=refinement,
        queries=queries, valid=valid, store=store,
    )  # fmt: skip
