"""CAKE's budgets: more cache for layers that prefer more, settled layer by layer."""

from itertools import product
from math import frexp, ldexp

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from reference import errors
from reference.scorers import errors as refuse


def cake_budgets(
    preferences: Float[Tensor, "layers *batch"],
    keep: int,
    tokens: int | Int64[Tensor, "*batch"],
    window: int = 32,
) -> Int64[Tensor, "layers *batch"]:
    r"""The budget of a head in each layer, in proportion to what the layers prefer.

    $$B_l = W + \min\Bigl( \Bigl\lfloor \frac{P_l}{\sum_k P_k} (B - W) L \Bigr\rfloor,\;
      N - W \Bigr) + \text{remainder}$$

    Args:
        preferences: $P$ of `cake_preference`, layers first, finite and at least 0.
        keep: mean budget $B$ of a head, at least `window`.
        tokens: number $N$ of tokens; a tensor holds the real tokens of each batch row.
        window: number $W$ of protected tokens, as in `cake`, at least 0.

    Returns:
        The budgets, layers first, each from the protected tokens to all tokens: beside the
        windows exactly $\min((B - W) L, (N - W) L)$ in all. Where no layer prefers anything, all
        get the same, give or take one place.

    Raises:
        TypeError: `preferences` is not floating point, `keep` or `window` not an integer, or
            `tokens` neither that nor an int64 tensor.
        ValueError: `preferences` has no axis, is negative or not finite, `keep` is below
            `window`, `tokens` or `window` is negative, or `tokens` has another shape than a row
            of `preferences`.

    Source:
        GraphKV-CAKE.

    Reading:
        E-G42: what truncation and clipping leave over goes round the layers that have room,
        first layers first, one place at a time.
    """
    lengths = _checked(preferences, keep, tokens, window)
    budgets = lengths.new_empty(preferences.shape)
    layers = preferences.shape[0]
    for row in product(*map(range, lengths.shape)):
        wishes = preferences[(slice(None), *row)].tolist()
        room, least = max(0, int(lengths[row]) - window), min(window, int(lengths[row]))
        shares = _shared(wishes, (keep - window) * layers, [room] * layers)
        for layer in range(layers):
            budgets[layer][row] = least + shares[layer]
    return budgets


def cake_cascade(
    preferences: Float[Tensor, "layers *batch"],
    keep: int,
    tokens: int | Int64[Tensor, "*batch"],
    window: int = 32,
) -> Int64[Tensor, "steps layers *batch"]:
    r"""The budgets while a prompt passes through the layers: after each, shared out anew.

    $$B_l^{(m)} = W + \min\Bigl( \Bigl\lfloor \frac{P_l}{\sum_{k \le m} P_k} (B - W) L
      \Bigr\rfloor,\; B_l^{(m - 1)} - W \Bigr) + \text{remainder}, \qquad
      B_m^{(m - 1)} = N, \quad l \le m$$

    Args:
        preferences: $P$ of `cake_preference`, layers first, finite and at least 0.
        keep: mean budget $B$ of a head over all layers, at least `window`.
        tokens: number $N$ of tokens; a tensor holds the real tokens of each batch row.
        window: number $W$ of protected tokens, as in `cake`, at least 0.

    Returns:
        Row $m$ has the budgets after layer $m$: 0 for the layers to come. No budget ever grows,
        since what has been evicted is gone; beside the windows, each row adds up to what the
        whole budget or the layers passed can hold. So the cache is never larger than in the end.

    Raises:
        TypeError: `preferences` is not floating point, `keep` or `window` not an integer, or
            `tokens` neither that nor an int64 tensor.
        ValueError: `preferences` has no axis, is negative or not finite, `keep` is below
            `window`, `tokens` or `window` is negative, or `tokens` has another shape than a row
            of `preferences`.

    Source:
        GraphKV-CAKE.

    Reading:
        E-G42, E-G43: the whole budget is shared among the layers passed, and no layer gets back
        what it has given up: the last row may differ from `cake_budgets` by single places.
    """
    lengths = _checked(preferences, keep, tokens, window)
    layers = preferences.shape[0]
    budgets = lengths.new_zeros(layers, *preferences.shape)
    for row in product(*map(range, lengths.shape)):
        wishes = preferences[(slice(None), *row)].tolist()
        room, least = max(0, int(lengths[row]) - window), min(window, int(lengths[row]))
        shares = []
        for step in range(layers):
            shares = _shared(wishes[: step + 1], (keep - window) * layers, [*shares, room])
            for layer in range(step + 1):
                budgets[step, layer][row] = least + shares[layer]
    return budgets


def _checked(preferences: Tensor, keep: int, tokens: int | Tensor, window: int) -> Tensor:
    """Refuse what no budgets can be made of; return the lengths of all rows."""
    errors.importance("preferences", preferences)
    errors.whole("window", window)
    errors.whole("keep", keep, window)
    refuse.lengths(tokens)
    rows = preferences.shape[1:]
    if isinstance(tokens, Tensor):
        errors.shaped("tokens", tokens, rows)
    return torch.as_tensor(tokens, device=preferences.device).expand(rows)


def _shared(wishes: list[float], total: int, rooms: list[int]) -> list[int]:
    """Divide `total` in proportion to `wishes`, at most its room to each."""
    parts = _parts(wishes)
    quotas = [part * total // max(1, sum(parts)) for part in parts]
    shares = [min(quota, room) for quota, room in zip(quotas, rooms, strict=True)]
    left = min(total, sum(rooms)) - sum(shares)
    while left:
        for layer, room in enumerate(rooms):
            if left and shares[layer] < room:
                shares[layer] += 1
                left -= 1
    return shares


def _parts(wishes: list[float]) -> list[int]:
    """Count each wish in whole parts, 2^24 to the power of two above the largest."""
    _, exponent = frexp(max(wishes, default=0.0))
    return [round(ldexp(wish, 24 - exponent)) for wish in wishes]
