"""Attention computed one number at a time, on Python floats."""

import math

import torch


def weights(query: list[float], keys: list[list[float]], scale: float) -> list[float]:
    """Return one query's weight on each of the keys it sees."""
    logits = [scale * math.fsum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    highest = max(logits, default=0.0)
    powers = [math.exp(logit - highest) for logit in logits]
    total = math.fsum(powers)
    return [power / total for power in powers]


def output(mass: list[float], values: list[list[float]], width: int) -> list[float]:
    """Return the mean of the values, weighted."""
    columns = range(width)
    return [math.fsum(m * v[c] for m, v in zip(mass, values, strict=True)) for c in columns]


def merged(*parts):
    """Return attention to the union of sets, from the output and the log-sum-exp of each set."""
    outputs, sums = (torch.stack(side) for side in zip(*parts, strict=True))
    return (sums.softmax(0).nan_to_num(0)[..., None] * outputs).sum(0)


def attend_one_head(queries, keys, values, causal: bool, scale: float | None):
    """Return weights, padded with zeros, and outputs of every query of one head."""
    all_weights, outputs = [], []
    for t, query in enumerate(queries):
        seen = len(keys) - len(queries) + t + 1 if causal else len(keys)
        width = len(query)
        mass = weights(query, keys[:seen], 1 / math.sqrt(width) if scale is None else scale)
        all_weights.append(mass + [0.0] * (len(keys) - seen))
        outputs.append(output(mass, values[:seen], width))
    return all_weights, outputs
