"""CAKE's budgets: more cache for layers that prefer more, settled layer by layer."""

from fractions import Fraction
from itertools import product

import torch
from jaxtyping import Int64
from torch import Tensor

from reference.contract.enforce import requires
from reference.contract.preconditions import windowed
from reference.contract.types import Importance, Whole, Wholes


@requires(windowed)
def cake_budgets(
    preferences: Importance[Tensor, "layers *batch"],
    keep: Whole,
    tokens: Whole | Wholes[Tensor, "*batch"],
    window: Whole = 32,
    exact: bool = False,
) -> Int64[Tensor, "layers *batch"]:
    r"""The budget of a head in each layer, in proportion to what the layers prefer.

    $$B_l = W + \min(q_l + e_l + d_l,\; N - W), \qquad q_l = \min\Bigl( \Bigl\lfloor
      \frac{P_l}{\sum_k P_k} (B - W) L \Bigr\rfloor,\; N - W \Bigr)$$

    What the minimum in $q$ cuts off is dealt out as $e$, and then what still lacks to $(B - W) L$
    as $d$: each time as much to every layer that has less than $N - W$, and what does not divide
    to the first of them. Where $N \le B + W$ nothing is evicted: $B_l = N$.

    Args:
        preferences: $P$ of `cake_preference`, layers first.
        keep: mean budget $B$ of a head, at least `window`.
        tokens: number $N$ of tokens; a tensor holds the real tokens of each batch row.
        window: number $W$ of protected tokens, as in `cake`.
        exact: deal what is over one place at a time among the layers that have room, also where
            $N \le B + W$, so that the whole budget is spent and no more.

    Returns:
        The budgets, layers first, each from the protected tokens to all tokens. If `exact` they
        add up, beside the windows, to $\min((B - W) L, (N - W) L)$; otherwise to at most as much
        where $N > B + W$. Where no layer prefers anything, all get the same, give or take one
        place.

    Source:
        GraphKV-CAKE. From elsewhere: Qin et al.; the paper names CAKE and does not define it;
        `exact` is ours (E-G42, E-G70).

    Reading:
        E-G42, E-G70: a deal may give a layer more than it has room for, and that is lost; prompts
        of up to a window more than the budget are kept whole.
    """
    lengths = tokens_per_row(preferences, tokens)
    budgets = lengths.new_empty(preferences.shape)
    layers = preferences.shape[0]
    for row in product(*map(range, lengths.shape)):
        wishes, length = preferences[(slice(None), *row)].tolist(), int(lengths[row])
        shares = [max(0, length - window)] * layers
        if exact or length > keep + window:
            divided = _shared if exact else _adjusted
            shares = divided(wishes, (keep - window) * layers, shares)
        for layer in range(layers):
            budgets[layer][row] = min(window, length) + shares[layer]
    return budgets


@requires(windowed)
def cake_cascade(
    preferences: Importance[Tensor, "layers *batch"],
    keep: Whole,
    tokens: Whole | Wholes[Tensor, "*batch"],
    window: Whole = 32,
    exact: bool = False,
) -> Int64[Tensor, "steps layers *batch"]:
    r"""The budgets while a prompt passes through the layers: after each, shared out anew.

    $$B_l^{(m)} = \min\bigl( B_l(P_1, \dots, P_m),\; B_l^{(m - 1)} \bigr), \qquad
      B_m^{(m - 1)} = N, \quad l \le m$$

    $B_l(P_1, \dots, P_m)$ is the budget of `cake_budgets` with $(B - W) L$ places of all layers
    shared among the first $m$.

    Args:
        preferences: $P$ of `cake_preference`, layers first.
        keep: mean budget $B$ of a head over all layers, at least `window`.
        tokens: number $N$ of tokens; a tensor holds the real tokens of each batch row.
        window: number $W$ of protected tokens, as in `cake`.
        exact: as in `cake_budgets`, with as much room in a layer as the step before has left it.

    Returns:
        Row $m$ has the budgets after layer $m$: 0 for the layers to come. No budget ever grows,
        since what has been evicted is gone. If `exact`, each row adds up, beside the windows, to
        what the whole budget or the layers passed can hold: the cache is never larger than in the
        end.

    Source:
        GraphKV-CAKE. From elsewhere: Qin et al.; the paper names CAKE and does not define it;
        `exact` is ours (E-G42, E-G43).

    Reading:
        E-G42, E-G43, E-G70: no layer gets back what it has given up, and what it would have got
        back is lost; the last row may differ from `cake_budgets` by single places.
    """
    lengths = tokens_per_row(preferences, tokens)
    layers = preferences.shape[0]
    budgets = lengths.new_zeros(layers, *preferences.shape)
    for row in product(*map(range, lengths.shape)):
        wishes, length = preferences[(slice(None), *row)].tolist(), int(lengths[row])
        shares = []
        for step in range(layers):
            shares = [*shares, max(0, length - window)]
            if exact or length > keep + window:
                divided = _shared if exact else _adjusted
                shares = divided(wishes[: step + 1], (keep - window) * layers, shares)
            for layer in range(step + 1):
                budgets[step, layer][row] = min(window, length) + shares[layer]
    return budgets


def tokens_per_row(preferences: Tensor, tokens: int | Tensor) -> Tensor:
    """Return the number of tokens of every row."""
    return torch.as_tensor(tokens, device=preferences.device).expand(preferences.shape[1:])


def _adjusted(wishes: list[float], total: int, rooms: list[int]) -> list[int]:
    """Divide `total` in proportion to `wishes`, and deal out twice what is over."""
    shares, most = _quotas(wishes, total), max(rooms, default=0)
    left = sum(max(0, share - most) for share in shares)
    shares = _dealt([min(share, most) for share in shares], left, most)
    shares = _dealt(shares, total - sum(shares), most)
    return [min(share, room) for share, room in zip(shares, rooms, strict=True)]


def _dealt(shares: list[int], left: int, most: int) -> list[int]:
    """Deal `left` places evenly to the shares below `most`, what does not divide to the first."""
    below = [layer for layer, share in enumerate(shares) if share < most]
    for turn, layer in enumerate(below):
        shares[layer] += left // len(below) + (turn < left % len(below))
    return shares


def _shared(wishes: list[float], total: int, rooms: list[int]) -> list[int]:
    """Divide `total` in proportion to `wishes`, at most its room to each."""
    quotas = _quotas(wishes, total)
    shares = [min(quota, room) for quota, room in zip(quotas, rooms, strict=True)]
    left = min(total, sum(rooms)) - sum(shares)
    while left:
        for layer, room in enumerate(rooms):
            if left and shares[layer] < room:
                shares[layer] += 1
                left -= 1
    return shares


def _quotas(wishes: list[float], total: int) -> list[int]:
    """Return each wish's part of `total`, rounded down; nothing if there is no wish."""
    exact = [*map(Fraction, wishes)]
    return [wish * total // (sum(exact) or 1) for wish in exact]
