"""How far a selection tears apart what belongs together: spans of code and mathematics."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from reference.contract import checks
from reference.contract.enforce import requires


class ChainDiagnostic(NamedTuple):
    """How two selections keep the tokens of a span."""

    base: Float[Tensor, ""]
    """Mean retention fraction of the base selection."""

    refined: Float[Tensor, ""]
    """Mean retention fraction of the refined selection."""

    change: Float[Tensor, ""]
    """`refined` less `base`."""

    changed: Float[Tensor, ""]
    """Share of the span's tokens whose retention fraction changed."""


def some_selected(base: Tensor, span: Tensor) -> None:
    """Refuse an empty selection, and a span without tokens."""
    checks.not_empty("base", base)
    checks.check_any_true("span", span)


@requires(some_selected)
def retained_chains(
    base: Bool[Tensor, "*heads tokens"],
    refined: Bool[Tensor, "*heads tokens"],
    span: Bool[Tensor, "tokens"],
) -> ChainDiagnostic:
    r"""Compare how far two selections keep a span of code or mathematics together.

    $$f_t = \frac{1}{LH} \sum_{\ell, h} \mathbb{I}(t \in S_{\ell, h}), \qquad
      \bar f = \frac{1}{|C|} \sum_{t \in C} f_t, \qquad
      \frac{1}{|C|} \sum_{t \in C} \mathbb{I}(f'_t \ne f_t)$$

    Args:
        base: the tokens that the base scorer keeps, for each layer and head.
        refined: the tokens that the refined scores keep.
        span: the tokens $C$ of the code or formula.

    Returns:
        Both means, their difference and the share of tokens whose fraction changed, in float32.
        Fractions are compared as counts: a token that moved from one head to another is unchanged.

    Source:
        HubKV-D. In words (D): "we measured the fraction of layer/head positions in which that token
        was retained". Table 4 leaves its changed share undefined, and spans are joined before the
        mean (E-U22).

    Reading:
        E-U22: the share counts tokens; spans of several examples are joined before the mean.
    """
    heads, count = base.shape[:-1].numel(), int(span.sum())
    kept = torch.zeros(count, dtype=torch.int64, device=base.device)
    kept_refined = torch.zeros_like(kept)
    for row, row_refined in zip(base.reshape(heads, -1), refined.reshape(heads, -1), strict=True):
        kept += row[span]
        kept_refined += row_refined[span]
    return ChainDiagnostic(
        base=kept.sum().float() / (heads * count),
        refined=kept_refined.sum().float() / (heads * count),
        change=(kept_refined - kept).sum().float() / (heads * count),
        changed=(kept_refined != kept).sum().float() / count,
    )
