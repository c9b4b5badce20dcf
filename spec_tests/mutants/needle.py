"""Mutants of GraphKV: where a needle is hidden, and what is found of it."""

from math import ceil

import torch

import reference
from spec_tests.mutants.graphkv import VECTOR
from spec_tests.mutants.make import mutant

NEEDLE = "graphkv/test_needle.py::test_"


@mutant("hide_needle", "a depth of the whole input", killer=f"{VECTOR}a-needle-halfway-down]")
def deeper_needle(haystack, needle, length, depth):
    """Count the needle into what stands around it."""
    around = length - len(needle)
    place = min(around, int(depth * length))
    return torch.cat([haystack[:place], needle, haystack[place:around]])


@mutant("hide_needle", "binary fractions", killer=f"{VECTOR}a-depth-is-decimal]")
def binary_depth(haystack, needle, length, depth):
    """Multiply in binary."""
    around = length - len(needle)
    place = int(depth * around)
    return torch.cat([haystack[:place], needle, haystack[place:around]])


@mutant(
    "hide_needle",
    "the haystack keeps its length",
    killer=f"{NEEDLE}a_needle_stands_whole_in_the_first_tokens_of_its_haystack",
)
def longer_input(haystack, needle, length, depth):
    """Add the needle to the whole text."""
    return reference.hide_needle(haystack, needle, len(haystack) + len(needle), depth)


@mutant(
    "hide_needle",
    "rounded up",
    killer=f"{NEEDLE}depths_from_0_to_1_reach_every_place",
)
def next_place(haystack, needle, length, depth):
    """Take the place behind the depth."""
    around = length - len(needle)
    place = ceil(depth * around)
    return torch.cat([haystack[:place], needle, haystack[place:around]])


@mutant(
    "needle_recall",
    "words as often as they are said",
    killer=f"{NEEDLE}order_and_repetition_of_words_change_no_recall",
)
def repeated_words(responses, answer):
    """Count what is said of the answer."""
    return (responses[..., None] == answer).any(-1).sum(-1) / len(answer.unique())


@mutant(
    "needle_recall",
    "the share of the response",
    killer=f"{NEEDLE}a_response_is_worth_the_words_of_the_answer_in_it",
)
def precision_of_words(responses, answer):
    """Divide by what was said."""
    right = (responses[..., None] == answer).any(-1).float()
    return right.sum(-1) / max(1, responses.shape[-1])
