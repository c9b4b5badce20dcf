"""CAKE one number at a time, on Python floats: one batch row without padding."""

import math

from spec_tests.oracles.attention import weights

Head = list[list[float]]


def observed(queries: Head, keys: Head, window: int) -> Head:
    """Return what each of the last queries gives to each token before them."""
    seen = []
    for back in range(window, 0, -1):
        visible = keys[: len(keys) - back + 1]
        row = weights(queries[len(queries) - back], visible, 1 / math.sqrt(len(keys[0])))
        seen.append(row[: len(keys) - window])
    return seen


def variance(column: list[float]) -> float:
    """Return the unbiased variance."""
    mean = math.fsum(column) / len(column)
    return math.fsum((a - mean) ** 2 for a in column) / (len(column) - 1)


def scores(
    queries: list[Head], keys: list[Head], window: int, gamma: float, kernel: int
) -> list[list[float]]:
    """Return the score of every token of every key head."""
    out = []
    for head, own in enumerate(keys):
        group = len(queries) // len(keys)
        members = queries[head * group : (head + 1) * group]
        old = len(own) - window
        total = [0.0] * len(own)
        for member in members if old > 0 else []:
            columns = list(zip(*observed(member, own, window), strict=True))
            raw = [math.fsum(c) / window + gamma * variance(list(c)) for c in columns]
            for t in range(old):
                near = [raw[i] for i in range(old) if abs(i - t) <= kernel // 2]
                total[t] += math.fsum(near) / kernel / group
        out.append(total)
    return out


def preference(
    queries: list[Head], keys: list[Head], window: int, tau1: float, tau2: float
) -> float:
    """Return the entropy times the variance, each to its power."""
    if len(keys[0]) <= window:
        return 0.0
    group = len(queries) // len(keys)
    entropy = change = 0.0
    for head, member in enumerate(queries):
        for column in zip(*observed(member, keys[head // group], window), strict=True):
            entropy -= math.fsum(a * math.log(a + 1e-10) for a in column)
            change += variance(list(column))
    return max(entropy, 0.0) ** (1 / tau1) * change ** (1 / tau2)


def budgets(wishes: list[int], keep: int, tokens: int, window: int, exact: bool) -> list[int]:
    """Return the budgets of whole preferences, by the rules as told and nothing clever."""
    layers, room = len(wishes), max(0, tokens - window)
    if not exact and tokens <= keep + window:
        return [tokens] * layers
    divide = dealt if exact else overfilled
    shares = divide(wishes, (keep - window) * layers, [room] * layers)
    return [share + min(window, tokens) for share in shares]


def cascade(wishes: list[int], keep: int, tokens: int, window: int, exact: bool) -> list[list[int]]:
    """Return the budgets after each layer: a layer has room for what the step before left it."""
    layers, room = len(wishes), max(0, tokens - window)
    shares, out = [], []
    for step in range(1, layers + 1):
        shares = [*shares, room]
        if exact:
            shares = dealt(wishes[:step], (keep - window) * layers, shares)
        elif tokens > keep + window:
            shares = overfilled(wishes[:step], (keep - window) * layers, shares)
        held = [share + min(window, tokens) for share in shares]
        out.append(held + [0] * (layers - step))
    return out


def dealt(wishes: list[int], total: int, rooms: list[int]) -> list[int]:
    """Return whole shares of a total, the rest dealt out one place at a time."""
    everyone = sum(wishes)
    shares = [
        min(wish * total // everyone if everyone else 0, room)
        for wish, room in zip(wishes, rooms, strict=True)
    ]
    turn = 0
    while sum(shares) < min(total, sum(rooms)):
        layer = turn % len(rooms)
        shares[layer] += shares[layer] < rooms[layer]
        turn += 1
    return shares


def overfilled(wishes: list[int], total: int, rooms: list[int]) -> list[int]:
    """Return whole shares of a total, the rest dealt out blindly, in two rounds, and then cut."""
    everyone, most = sum(wishes), max(rooms)
    shares = [wish * total // everyone if everyone else 0 for wish in wishes]
    cut = sum(share - most for share in shares if share > most)
    shares = [min(share, most) for share in shares]
    for number in (lambda: cut, lambda: total - sum(shares)):
        open_layers = [layer for layer, share in enumerate(shares) if share < most]
        for place in range(number() if open_layers else 0):
            shares[open_layers[place % len(open_layers)]] += 1
    return [min(share, room) for share, room in zip(shares, rooms, strict=True)]
