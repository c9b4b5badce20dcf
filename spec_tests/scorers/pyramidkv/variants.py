"""Another way to compute PyramidKV's budgets."""

import torch

from spec_tests.variants.registry import register_variant


@register_variant("pyramidkv_budgets")
def row_by_row(keep, layers, tokens, window=32, beta=20, exact=False):
    """Move half of the drop from the last layer to the first."""
    rows = [
        even(keep, layers, int(n), window, beta, exact) for n in torch.as_tensor(tokens).view(-1)
    ]
    return (
        torch.tensor(rows, dtype=torch.int64)
        .reshape(-1, layers)
        .mT.reshape(layers, *torch.as_tensor(tokens).shape)
    )


def even(keep, layers, tokens, window, beta, exact):
    """Return the budgets of one row."""
    mean = min(keep, tokens)
    half = min(mean - window - (mean - window) // beta, tokens - mean)
    if tokens <= keep or layers == 1 or tokens < 2 * (keep - window):
        return [mean] * layers
    if not exact:
        return [mean + half - layer * (2 * half // (layers - 1)) for layer in range(layers)]
    steps = [divmod(2 * half * layer, layers - 1) for layer in range(layers)]
    budgets = [mean + half - step - (rest > 0) for step, rest in steps]
    # places lost by rounding down go to the largest remainders, which have the smallest rests
    order = sorted(range(layers), key=lambda layer: (-(-steps[layer][1] % (layers - 1)), layer))
    for layer in order[: layers * mean - sum(budgets)]:
        budgets[layer] += 1
    return budgets
