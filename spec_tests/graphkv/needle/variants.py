"""Other correct ways to hide a needle and to measure its recall."""

from decimal import Decimal

import torch

from spec_tests.variants.registry import register_variant


@register_variant("hide_needle")
def by_inserting(haystack, needle, length, depth):
    """Insert into a list."""
    text = haystack[: length - len(needle)].tolist()
    place = int(Decimal(str(depth)) * len(text))
    text[place:place] = needle.tolist()
    return torch.tensor(text, dtype=torch.int64)


@register_variant("needle_recall")
def by_comparing(responses, answer):
    """Compare all words."""
    words = torch.unique(answer)
    return (responses[..., :, None] == words).any(-2).float().mean(-1)


@register_variant("needle_recall", "values")
def word_by_word(responses, answer):
    """Count the words of the answer one by one."""
    words = {*answer.tolist()}
    return sum((responses == word).any(-1).float() for word in words) / len(words)
