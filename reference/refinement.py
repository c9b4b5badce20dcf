"""The step between scoring and selecting, whichever paper it comes from."""

from typing import Any

from jaxtyping import Float
from torch import Tensor

from reference import compress_errors as refuse
from reference import errors
from reference.contract import contract
from reference.graphkv.refine import GraphSettings, graphkv_refine
from reference.hubkv.locality import NmsSettings, nms
from reference.hubkv.refine import HubSettings, hubkv_refine
from reference.precision import widen
from reference.scorers.scored import Scored

hold = contract(graphkv_refine)


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
    r"""Refine what a scorer returned, by the settings of one paper or of none.

    $$z = \operatorname{refine}(s, P), \qquad \operatorname{refine} \in \{\mathrm{id},
      \mathrm{HubKV}, \mathrm{GraphKV}, \mathrm{NMS}\}$$

    Args:
        scored: raw scores $s$, and what stands outside the content region: protected tokens, and
            padding where there is some.
        refinement: settings of `hubkv_refine`, `graphkv_refine` or `nms`, which say which of them
            runs; none of them by default.
        keep: tokens a head will keep, at least 0: GraphKV's budget.
        ratio: HubKV's gate ratio, in [0, 1]; by default $1 - \mathrm{keep} / \mathrm{tokens}$,
            and at least 0.
        keys: the keys, which GraphKV compares.
        values: the values, where its edges compare them.
        queries: the queries, where its edges compare them.

    Returns:
        The refined scores in float32, or float64 where the raw ones are. What stands at tokens
        outside the content region is for show: whoever selects reads the mask.

    Raises:
        TypeError: `scored` is no `Scored`, `refinement` of another type, or `keep` not an integer.
        ValueError: a number is outside its range, a score negative, NaN or infinite, keys are
            missing where GraphKV runs, or a shape does not match.

    Source:
        HubKV-13, GraphKV-4.1, HubKV-Obs3.

    Reading:
        C6, E-G5, E-U8: scores below 0 are refused by every refinement; shift them first.
    """
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
        # among scores that are at least 0, a 0 takes no window from anybody
        return nms(scores.masked_fill(outside, 0), *refinement)
    if isinstance(refinement, GraphSettings):
        errors.given("keys", keys, "where refinement is GraphSettings")
        assert keys is not None
        call: dict[str, Any] = dict(scores=scores, keys=keys, keep=keep, protected=outside)
        call |= dict(queries=queries, values=values) | refinement._asdict()
        hold((), call)
        return graphkv_refine(**call)
    errors.finite("scored.scores", scores)
    return scores.clone()
