"""The diagnostics of locality without loops over tokens, heads or queries."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from optimized.vector.hubkv import hub_mask
from reference import ChainDiagnostic, errors, protected_mask
from reference.precision import widen


def segment_coverage(
    order: Int64[Tensor, "*batch picks"], tokens: int, segments: int = 64
) -> Float[Tensor, "*batch picks"]:
    errors.whole("tokens", tokens)
    errors.whole("segments", segments, 1)
    errors.positions("order", order, tokens)
    touched, pick = (segments * order // max(tokens, 1)).sort(dim=-1, stable=True)
    # within a segment the stable sort keeps the order picked: its first entry is the first touch
    new = torch.ones_like(touched, dtype=torch.bool)
    new[..., 1:] = touched.diff() != 0
    first = torch.empty_like(new).scatter_(-1, pick, new)
    return first.to(torch.float32) / segments


def autocorrelation(
    values: Float[Tensor, "*batch tokens"], distances: int
) -> Float[Tensor, "*batch {distances}+1"]:
    errors.floating("values", values)
    errors.finite("values", values)
    tokens = values.shape[-1]
    errors.whole("distances", distances, 0, tokens - 1)
    # in float64, where the squares of float32 numbers neither overflow nor vanish
    exact = values.double()
    centred = exact - exact.mean(-1, keepdim=True)
    shifted = F.pad(centred, (0, distances)).unfold(-1, tokens, 1)
    pairs = tokens - torch.arange(distances + 1, device=values.device)
    covariances = (shifted @ centred[..., None])[..., 0] / pairs
    constant = (values == values[..., :1]).all(-1) | (covariances[..., 0] == 0)
    found = (covariances / covariances[..., :1]).masked_fill(constant[..., None], 0)
    return found.to(widen(values).dtype)


def nms(
    scores: Float[Tensor, "*heads tokens"], radius: int = 3, factor: float = 0.3
) -> Float[Tensor, "*heads tokens"]:
    errors.importance("scores", scores)
    errors.fraction("factor", factor)
    return torch.where(hub_mask(scores, radius), scores, factor * scores)


def distance_profile(
    weights: Float[Tensor, "*heads queries tokens"], distances: int = 128
) -> Float[Tensor, "*heads {distances}+1"]:
    errors.floating("weights", weights, axes=2)
    errors.importance("weights", weights)
    queries, tokens = weights.shape[-2:]
    errors.whole("distances", distances, 0, tokens - 1)
    errors.whole("number of queries in weights", queries, 1, tokens)
    weights = widen(weights)
    places = torch.arange(tokens - queries, tokens, device=weights.device)
    seen = places[:, None] - torch.arange(distances + 1, device=weights.device)
    index = seen.clamp(min=0).expand(*weights.shape[:-1], -1)
    pairs = weights.gather(-1, index).masked_fill(seen < 0, 0)
    return pairs.sum(-2) / (seen >= 0).sum(0)


def attention_density(
    weights: Float[Tensor, "*heads queries tokens"], content: Bool[Tensor, " tokens"] | None = None
) -> Float[Tensor, "*heads tokens"]:
    errors.floating("weights", weights, axes=2)
    errors.importance("weights", weights)
    queries, tokens = weights.shape[-2:]
    errors.whole("number of queries in weights", queries, 0, tokens)
    if content is None:
        content = ~protected_mask(tokens)
    errors.boolean("content", content, (tokens,))
    asked = content[tokens - queries :]
    errors.marking("content at the queries", asked)
    weights = widen(weights).masked_fill(~asked[:, None].to(weights.device), 0)
    return weights.sum(-2) / asked.sum()


def uniform_spread(tokens: int, picks: int) -> Int64[Tensor, "picks"]:
    errors.whole("tokens", tokens)
    errors.whole("picks", picks, 0, tokens)
    return -(-torch.arange(picks) * tokens // max(picks, 1))


def retained_chains(
    base: Bool[Tensor, "*heads tokens"],
    refined: Bool[Tensor, "*heads tokens"],
    span: Bool[Tensor, "tokens"],
) -> ChainDiagnostic:
    errors.boolean("base", base)
    errors.not_empty("base", base)
    errors.boolean("refined", refined, base.shape)
    errors.boolean("span", span, base.shape[-1:])
    errors.marking("span", span)
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
