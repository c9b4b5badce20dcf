"""CAKE's budgets by counting, on integers."""


def budgets(wishes: list[int], keep: int, tokens: int, window: int, exact: bool) -> list[int]:
    """Return the budgets of integer preferences, by the stated rules in the simplest way."""
    layers, room = len(wishes), max(0, tokens - window)
    if not exact and tokens <= keep + window:
        return [tokens] * layers
    divide = dealt if exact else overfilled
    shares = divide(wishes, (keep - window) * layers, [room] * layers)
    return [share + min(window, tokens) for share in shares]


def cascade(wishes: list[int], keep: int, tokens: int, window: int, exact: bool) -> list[list[int]]:
    """Return the budgets after each layer; each step can only reduce earlier budgets."""
    layers, room = len(wishes), max(0, tokens - window)
    shares, out = [], []
    for step in range(1, layers + 1):
        shares = [*shares, room]
        if exact:
            shares = dealt(wishes[:step], (keep - window) * layers, shares)
        elif tokens > keep + window:
            shares = overfilled(wishes[:step], (keep - window) * layers, shares)
        budgets_so_far = [share + min(window, tokens) for share in shares]
        out.append(budgets_so_far + [0] * (layers - step))
    return out


def dealt(wishes: list[int], total: int, rooms: list[int]) -> list[int]:
    """Return integer shares of a total; the rest is given out one place at a time."""
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
    """Return integer shares; the rest is given out in two rounds without a check, then clipped."""
    everyone, most = sum(wishes), max(rooms)
    shares = [wish * total // everyone if everyone else 0 for wish in wishes]
    cut = sum(share - most for share in shares if share > most)
    shares = [min(share, most) for share in shares]
    for number in (lambda: cut, lambda: total - sum(shares)):
        open_layers = [layer for layer, share in enumerate(shares) if share < most]
        for number_dealt in range(number() if open_layers else 0):
            shares[open_layers[number_dealt % len(open_layers)]] += 1
    return [min(share, room) for share, room in zip(shares, rooms, strict=True)]
