"""The step between scoring and selecting, for every paper."""

from jaxtyping import Float
from torch import Tensor

from reference.contract.enforce import requires, within
from reference.contract.preconditions import multiple
from reference.contract.types import BoundsTest, Finite, Importance, Ratio, Whole
from reference.graphkv.refine import GraphSettings, covers_window, graphkv_refine
from reference.hubkv.nms import NmsSettings, nms
from reference.hubkv.refine import HubSettings, hubkv_refine
from reference.precision import widen
from reference.scorers.scored import Scored

Refinement = HubSettings | GraphSettings | NmsSettings
"""Settings; their type selects the refinement."""

FINITE, IMPORTANT = (BoundsTest.of([vars(kind)["values"]]) for kind in (Finite, Importance))


def vectors_fit_refinement(
    refinement: Refinement | None,
    keys: Tensor | None,
    values: Tensor | None,
    queries: Tensor | None,
    valid: Tensor | None,
) -> None:
    """Refuse vectors that a graph cannot compare: missing, not finite, or wrong in heads."""
    if keys is not None and queries is not None and keys.shape[-3] != queries.shape[-3]:
        multiple("queries", queries.shape[-3], keys.shape[-3], least=1)
    if not isinstance(refinement, GraphSettings):
        return
    needed = {"keys": keys}
    needed |= {"queries": queries} if "q" in refinement.kind else {}
    needed |= {"values": values} if "v" in refinement.kind else {}
    for name, vectors in needed.items():
        if vectors is None:
            raise ValueError(
                f"{name} must be given where refinement.kind is {refinement.kind!r}, got None"
            )
        finite(name, vectors, valid if valid is None else valid[..., None, :, None])


def require_finite_scores(
    scored: Scored, refinement: Refinement | None, valid: Tensor | None
) -> None:
    """Refuse scores of real tokens that are not finite, or are negative where they are refined."""
    real = None if valid is None else valid[..., None, :]
    if isinstance(refinement, NmsSettings):
        real = ~scored.protected if real is None else real & ~scored.protected
    finite("scored.scores", scored.scores, real, refinement is not None)


def finite(name: str, tensor: Tensor, real: Tensor | None, positive: bool = False) -> None:
    """Refuse NaN and infinities, and if `positive` also negative numbers, at real entries."""
    within(name, tensor, IMPORTANT if positive else FINITE, real)


@requires(vectors_fit_refinement, require_finite_scores)
def refine(
    scored: Scored,
    refinement: Refinement | None = None,
    *,
    keep: Whole,
    ratio: Ratio | None = None,
    keys: Float[Tensor, "*batch kv_heads tokens width"] | None = None,
    values: Float[Tensor, "*batch kv_heads tokens width"] | None = None,
    queries: Float[Tensor, "*batch query_heads tokens width"] | None = None,
) -> Float[Tensor, "*batch kv_heads tokens"]:
    r"""Refine a scorer's result by the settings of one paper, or not at all.

    $$z = \operatorname{refine}(s, P), \qquad \operatorname{refine} \in \{\mathrm{id},
      \mathrm{HubKV}, \mathrm{GraphKV}, \mathrm{NMS}\}$$

    Args:
        scored: raw scores $s$, and the mask of all tokens outside the content region: protected
            tokens, and padding if there is any.
        refinement: settings of `hubkv_refine`, `graphkv_refine` or `nms`, which select one of
            these; by default none.
        keep: number of tokens that a head keeps: GraphKV's budget.
        ratio: HubKV's gate ratio; by default $1 - \mathrm{keep} / \mathrm{tokens}$, and at least 0.
        keys: the keys, which GraphKV compares.
        values: the values, where its edges compare them.
        queries: the queries, where its edges compare them.

    Returns:
        The refined scores in float32, or float64 where the raw ones are. Outside the content region
        HubKV returns 1, NMS 0 and GraphKV the raw score; a selection must use the mask there.

    Raises:
        ValueError: a score is too large to be refined, or `keep` below the window that is
            excluded from it.

    Source:
        HubKV-13, GraphKV-4.1, HubKV-Obs3. Ours: one call for the refinements of the papers.

    Reading:
        C6, E-G5, E-U8: scores below 0 are refused by every refinement; shift them first.
    """
    scores, outside = widen(scored.scores), scored.protected
    if isinstance(refinement, HubSettings):
        if ratio is None:
            ratio = max(0.0, 1 - keep / max(1, scores.shape[-1]))
        return hubkv_refine(scores, ratio, outside, *refinement)
    if isinstance(refinement, NmsSettings):
        # all scores are at least 0, so that a 0 suppresses no other score
        return nms(scores.masked_fill(outside, 0), *refinement)
    if isinstance(refinement, GraphSettings):
        assert keys is not None
        covers_window(keep, outside, refinement.per_head, refinement.exclude_window)
        vectors = dict(queries=queries, values=values)
        settings = refinement._asdict()
        return graphkv_refine(scores, keys, keep, protected=outside, **vectors, **settings)
    return scores.clone()
