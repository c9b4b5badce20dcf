"""The retention of spans as sums over all layers and heads."""

from torch import Tensor

from reference.hubkv.span_retention import ChainDiagnostic


def retained_chains(base: Tensor, refined: Tensor, span: Tensor) -> ChainDiagnostic:
    places = base.shape[:-1].numel()
    before, after = (mask.reshape(places, -1).sum(0) for mask in (base, refined))
    moved = (after - before).masked_fill(~span, 0)
    length = span.sum()
    whole = (places * length).float()
    return ChainDiagnostic(
        base=before.masked_fill(~span, 0).sum().float() / whole,
        refined=after.masked_fill(~span, 0).sum().float() / whole,
        change=moved.sum().float() / whole,
        changed=(moved != 0).sum().float() / length.float(),
    )
