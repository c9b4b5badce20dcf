"""Refusals of numbers that quantisers and scorers share."""

import torch

from spec_tests.draw import INFINITE, NAN, Refusal, integers
from spec_tests.hex.kcvt.draws import huge as huge

bad_bits = [
    Refusal("bits", 0, ValueError, "[1, 8]"),
    Refusal("bits", 9, ValueError, "[1, 8]"),
    Refusal("bits", 3.0, TypeError, "integer"),
]
bad_scales = [
    Refusal("scales", torch.bfloat16, ValueError, "torch.float16"),
    Refusal("scales", torch.int8, ValueError, "torch.float16"),
]
bad_ratio = [
    Refusal("ratio", -0.1, ValueError, "[0, 1]"),
    Refusal("ratio", 1.5, ValueError, "[0, 1]"),
    Refusal("ratio", float("nan"), ValueError, "[0, 1]"),
]


def bad_numbers(*arguments: str) -> list[Refusal]:
    """Refusals of tensors that must be floating point and finite."""
    return [
        refusal
        for argument in arguments
        for refusal in (
            Refusal(argument, integers, TypeError, "floating-point"),
            Refusal(argument, NAN, ValueError, "finite"),
            Refusal(argument, INFINITE, ValueError, "finite"),
        )
    ]


def size(name: str, low: int) -> list[Refusal]:
    """Refusals of a number of tokens, heads or channels."""
    return [
        Refusal(name, low - 1, ValueError, f">= {low}"),
        Refusal(name, 8.0, TypeError, "integer"),
    ]
