"""Functions of HubKV, and a cache after eviction, on nested lists: an example to test.

It needs only the standard library: `python judge.py example`.
"""

from fractions import Fraction
from math import exp, floor, inf, sqrt


def rows(function, *tensors):
    """Apply a function to each row along the last axis."""
    if not tensors[0] or not isinstance(tensors[0][0], list):
        return function(*tensors)
    return [rows(function, *parts) for parts in zip(*tensors, strict=True)]


def hub_mask(scores, radius=2, protected=None):
    """HubKV-6: a token is a hub if it is the first maximum of its window."""

    def of_row(row, aside):
        rivals = [-inf if hidden else score for score, hidden in zip(row, aside, strict=True)]
        hubs = []
        for at, hidden in enumerate(aside):
            start = max(0, at - radius)
            window = rivals[start : at + radius + 1]
            hubs.append(not hidden and start + window.index(max(window)) == at)
        return hubs

    return rows(of_row, scores, protected or rows(lambda row: [False] * len(row), scores))


def discount(scores, hubs, gamma=0.5):
    """HubKV-7: the scores of tokens that are no hubs are multiplied by gamma."""

    def of_row(row, marks):
        return [score * (1 if hub else gamma) for score, hub in zip(row, marks, strict=True)]

    return rows(of_row, scores, hubs)


def gate(scores, corrected, ratio, power=2.0):
    """HubKV-10: mix raw and corrected scores by a power of the removed ratio."""
    strength = ratio**power

    def of_row(row, other):
        return [(1 - strength) * s + strength * c for s, c in zip(row, other, strict=True)]

    return rows(of_row, scores, corrected)


def protected_mask(tokens, sinks=4, recent=None):
    """HubKV-11: mark the first tokens, and the last two percent."""
    recent = tokens // 50 if recent is None else recent
    return [at < sinks or at >= tokens - recent for at in range(tokens)]


def kept_count(pool, ratio):
    """HubKV-1: the number of kept entries, computed from the ratio's exact decimal."""
    return floor((1 - Fraction(str(ratio))) * pool)


def ranking(scores):
    """C1: positions from the highest score to the lowest; of equal scores the first comes first."""
    return rows(lambda row: sorted(range(len(row)), key=lambda at: (-row[at], at)), scores)


def retain(scores, protected=None, keep=None, ratio=None, scope="head"):
    """HubKV-3: mark the best entries of each pool, protected ones first."""
    if not flat(scores):
        return scores
    protected = protected or rows(lambda row: [False] * len(row), scores)
    axes = {"head": 1, "layer": 2, "model": depth(scores)}[scope]
    if scope == "model" and axes > 3:  # each batch row is its own pool
        return by_batch_row(scores, protected, keep, ratio)
    return marked(scores, protected, keep, ratio, axes)


def marked(scores, protected, keep, ratio, axes):
    """Mark the best entries of each pool along the last axes."""
    if depth(scores) > axes:
        keeps = keep if isinstance(keep, list) else [keep] * len(scores)
        parts = zip(scores, protected, keeps, strict=True)
        return [marked(s, p, k, ratio, axes) for s, p, k in parts]
    pool, first = flat(scores), flat(protected)
    count = kept_count(len(pool), ratio) if keep is None else keep
    best = sorted(range(len(pool)), key=lambda at: (not first[at], -pool[at], at))[:count]
    marks = iter([at in {*best} for at in range(len(pool))])
    return rows(lambda row: [next(marks) for _ in row], scores)


def by_batch_row(scores, protected, keep, ratio):
    """Mark the best entries of each batch row, the second axis, over all layers and heads."""
    found = []
    for at in range(len(scores[0])):
        row, aside = [layer[at] for layer in scores], [layer[at] for layer in protected]
        count = keep[at] if isinstance(keep, list) else keep
        if depth(row) > 3:
            found.append(by_batch_row(row, aside, count, ratio))
        else:
            found.append(marked(row, aside, count, ratio, 3))
    return [list(layer) for layer in zip(*found, strict=True)]


def evict(keys, values, kept):
    """C8: the kept entries in order of positions; one head after another if ragged."""
    places = rows(lambda row: [at for at, keep in enumerate(row) if keep], kept)
    counts = [len(row) for row in heads(places)]

    def picked(tensor, row):
        return [tensor[at] for at in row]

    if len({*counts}) <= 1:
        left = {"keys": along(picked, keys, places), "values": along(picked, values, places)}
        return left | {"positions": places}
    pairs = [*zip(heads(keys, 2), heads(values, 2), heads(places), strict=True)]
    return {
        "keys": [vector for head, _, row in pairs for vector in picked(head, row)],
        "values": [vector for _, head, row in pairs for vector in picked(head, row)],
        "positions": [at for row in heads(places) for at in row],
        "offsets": [sum(counts[:at]) for at in range(len(counts) + 1)],
    }


def ragged_attention(queries, cache, keys, values, valid=None, causal=True, scale=None):
    """GraphKV-4.1: attention of each query to the kept entries of its head and to newer tokens."""
    if not flat(queries) or not flat(keys):
        raise NotImplementedError("an axis without elements")
    of_keys, of_values, outputs = heads(keys, 2), heads(values, 2), []
    query_heads, kv_heads = (len(last_axes(tensor, 3)) for tensor in (queries, keys))
    for number, of_head in enumerate(heads(queries, 2)):
        row, head = divmod(number, query_heads)
        h = row * kv_heads + head // (query_heads // kv_heads)
        real = valid and heads(valid)[row]
        kept = slice(cache["offsets"][h], cache["offsets"][h + 1])
        tokens = len(of_keys[h])
        for t, query in enumerate(of_head):
            at = tokens - len(of_head) + t
            seen = [
                j
                for j in range(tokens)
                if not (causal and j > at) and (not real or real[j] or (causal and j == at))
            ]
            near = [*cache["keys"][kept], *(of_keys[h][j] for j in seen)]
            read = [*cache["values"][kept], *(of_values[h][j] for j in seen)]
            outputs.append(attended(query, near, read, scale or 1 / sqrt(len(query))))
    found = iter(outputs)
    return rows(lambda _: next(found), queries)


def attended(query, keys, values, scale):
    """Return the output of one query; 0 where it sees nothing."""
    if not keys:
        return [0.0] * len(query)
    logits = [scale * sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    weights = [exp(logit - max(logits)) for logit in logits]
    total = sum(weights)
    return [
        sum(w * v for w, v in zip(weights, c, strict=True)) / total
        for c in zip(*values, strict=True)
    ]


def depth(tensor):
    """Return the number of axes."""
    return 1 + (depth(tensor[0]) if tensor else 0) if isinstance(tensor, list) else 0


def flat(tensor):
    """Return the elements of nested lists."""
    return [x for part in tensor for x in flat(part)] if isinstance(tensor, list) else [tensor]


def heads(tensor, axes=1):
    """Return the slices along the last axes for all heads."""
    if depth(tensor) <= axes:
        return [tensor]
    return [one for part in tensor for one in heads(part, axes)]


def along(function, tensor, places):
    """Apply a function to the vectors and the index of each head."""
    if places and isinstance(places[0], list):
        return [along(function, *pair) for pair in zip(tensor, places, strict=True)]
    return function(tensor, places)


def last_axes(tensor, axes):
    """Return the first slice along the last axes."""
    return tensor if depth(tensor) == axes else last_axes(tensor[0], axes)
