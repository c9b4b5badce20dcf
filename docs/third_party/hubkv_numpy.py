"""The core of HubKV over NumPy arrays, written from the paper in an afternoon."""

import numpy as np


def hub_mask(scores, radius=2, protected=None):
    """Equation 6: a token is a hub if it holds the maximum of its window."""
    hidden = scores if protected is None else np.where(protected, -np.inf, scores)
    padding = [(0, 0)] * (scores.ndim - 1) + [(radius, radius)]
    padded = np.pad(hidden, padding, constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, 2 * radius + 1, axis=-1)
    hubs = hidden == windows.max(-1)
    return hubs if protected is None else hubs & ~protected


def discount(scores, hubs, gamma=0.5):
    """Equation 7: a token that is not a hub is worth less."""
    return scores * np.where(hubs, 1.0, gamma)


def gate(scores, corrected, ratio, power=2.0):
    """Equation 10: the more is removed, the more the correction counts."""
    strength = ratio
    wide = np.result_type(scores, np.float32)
    mixed = (1 - strength) * scores.astype(wide) + strength * corrected.astype(wide)
    return mixed.astype(scores.dtype)


def protected_mask(tokens, sinks=4, recent=None):
    """Equation 11: the first tokens and the latest two percent are kept."""
    recent = round(0.02 * tokens) if recent is None else recent
    at = np.arange(tokens)
    return (at < sinks) | (at >= tokens - recent)
