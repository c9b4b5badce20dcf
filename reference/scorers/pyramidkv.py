"""PyramidKV: SnapKV's scores under budgets that shrink from layer to layer."""

from fractions import Fraction
from itertools import product
from math import floor

import torch
from jaxtyping import Int64
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import windowed
from reference.contract.types import Positive, Whole, Wholes


@requires(windowed)
def pyramidkv_budgets(
    keep: Whole,
    layers: Positive,
    tokens: Whole | Wholes[Tensor, "*batch"],
    window: Whole = 32,
    beta: Positive = 20,
    exact: bool = False,
) -> Int64[Tensor, "layers *batch"]:
    r"""The budget of a head in each layer, along a line from the first layer down to the last.

    $$b = \min(B, N) - W, \quad b_{\min} = \lfloor b / \beta \rfloor, \quad
      b_{\max} = 2b - b_{\min}, \qquad
      B_l = W + b_{\max} - l \Bigl\lfloor \frac{b_{\max} - b_{\min}}{L - 1} \Bigr\rfloor$$

    Where $b_{\max}$ exceeds the $N - W$ tokens there are, it is $N - W$, and $b_{\min}$ is
    $2b - (N - W)$. Where $N < 2(B - W)$, every layer has $\min(B, N)$.

    Args:
        keep: mean budget $B$ of a head, at least `window`.
        layers: number $L$ of layers.
        tokens: number $N$ of tokens; a tensor holds the real tokens of each batch row.
        window: number $W$ of protected tokens, as in `snapkv`.
        beta: $\beta$: the larger, the steeper; at 1 all layers are equal.
        exact: round the line so that the budgets add up to $L \min(B, N)$, by largest remainders.

    Returns:
        The budgets, layers first, each from the protected tokens to all tokens. Unless `exact`
        they add up to more than $L \min(B, N)$: by $\tfrac{L}{2} \bigl((b_{\max} - b_{\min}) \bmod
        (L - 1)\bigr)$.

    Source:
        GraphKV-PyramidKV. From elsewhere: Cai et al.; the paper names PyramidKV and does not define
        it; `exact` is ours (E-G32).

    Reading:
        E-G32, E-G60: the rounded step overspends, and short prompts have no pyramid; one layer
        gets the mean budget.
    """
    lengths = torch.as_tensor(tokens)
    budgets = lengths.new_empty(layers, *lengths.shape)
    for row in product(*map(range, lengths.shape)):
        room = max(0, int(lengths[row]) - window)
        mean = min(keep - window, room)
        least = mean // beta
        most = 2 * mean - least
        if most > room:
            most, least = room, 2 * mean - room
        if layers == 1 or int(lengths[row]) < 2 * (keep - window):
            most = least = mean
        share = _line(most, least, layers) if exact else _stairs(most, least, layers)
        for layer in range(layers):
            budgets[layer][row] = share[layer] + min(window, int(lengths[row]))
    return budgets


def _stairs(most: int, least: int, layers: int) -> list[int]:
    """Go down from `most` in equal steps, each rounded down."""
    step = (most - least) // max(1, layers - 1)
    return [most - layer * step for layer in range(layers)]


def _line(most: int, least: int, layers: int) -> list[int]:
    """Round the line from `most` to `least`, keeping its sum: the largest remainders go up."""
    step = Fraction(most - least, max(1, layers - 1))
    line = [most - layer * step for layer in range(layers)]
    share = [floor(value) for value in line]
    missing = sum(line) - sum(share)
    by_remainder = sorted(range(layers), key=lambda layer: (share[layer] - line[layer], layer))
    for layer in by_remainder[: int(missing)]:
        share[layer] += 1
    return share
