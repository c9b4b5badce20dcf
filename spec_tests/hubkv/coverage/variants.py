"""Other correct ways to compute coverage."""

import torch

from spec_tests.variants.registry import register_variant


def wide(x):
    """Return a tensor in float32, or unchanged if it is float64."""
    return x if x.dtype == torch.float64 else x.float()


@register_variant("coverage_weights")
def by_a_matrix(scores, kernel):
    """Build the matrix of the kernel between all places, and normalise its columns."""
    scores = wide(scores)
    place = torch.arange(scores.shape[-1])
    matrix = kernel.to(scores.dtype)[(place[:, None] - place[None, :]).abs()]
    return scores[..., None, :] * matrix / matrix.sum(0)


@register_variant("coverage_weights", "values")
def place_by_place(scores, kernel):
    """Loop over pairs of places in Python."""
    n, k = scores.shape[-1], kernel.tolist()
    columns = [sum(k[abs(i - j)] for i in range(n)) for j in range(n)]
    matrix = [[k[abs(i - j)] / columns[j] for j in range(n)] for i in range(n)]
    return scores[..., None, :] * torch.tensor(matrix, dtype=scores.dtype).reshape(n, n)


@register_variant("coverage")
def by_the_best(weights, kept):
    """Sum the largest weight of each place among the kept tokens and 0."""
    best = wide(weights).masked_fill(~kept[..., None, :], 0)
    return best.amax(-1).sum(-1) if best.shape[-1] else best.sum((-2, -1))


@register_variant("coverage", "values")
def head_by_head(weights, kept):
    """Loop over heads, and select the columns of the kept tokens."""
    rows = zip(
        weights.reshape(-1, *weights.shape[-2:]), kept.reshape(-1, kept.shape[-1]), strict=True
    )
    worth = [w[:, k].amax(1).sum() if k.any() else w.new_zeros(()) for w, k in rows]
    return torch.stack(worth).reshape(kept.shape[:-1]) if worth else weights.sum((-2, -1))


@register_variant("marginal_gain")
def all_at_once(weights, kept):
    """Sum each token's weights above the covered ones."""
    weights = wide(weights)
    if not weights.shape[-1]:
        return weights.sum(-1)
    covered = (weights * kept[..., None, :]).amax(-1, keepdim=True)
    return torch.relu(weights - covered).sum(-2)


@register_variant("marginal_gain", "values")
def by_maxima(weights, kept):
    """Subtract the covered weights from their maximum with each token's."""
    covered = (weights * kept[..., None, :]).amax(-1, keepdim=True)
    return (torch.maximum(weights, covered) - covered).sum(-2, dtype=torch.float64).to(weights)


@register_variant("overlap")
def columns_at_once(weights, hub):
    """Compare all columns with the hub's."""
    weights = wide(weights)
    shared = torch.minimum(weights, weights[..., hub, None].clone()).sum(-2)
    scores = weights.sum(-2)
    return torch.where(scores == 0, 0, shared / scores)


@register_variant("overlap", "values")
def by_shares(weights, hub):
    """Divide each column by its sum, then add the minima."""
    scores = weights.sum(-2, keepdim=True)
    shares = torch.minimum(weights, weights[..., [hub]]) / scores
    return shares.sum(-2).nan_to_num(0)
