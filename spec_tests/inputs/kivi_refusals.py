"""What KIVI refuses."""

import torch

import reference
from spec_tests.draw import Refusal
from spec_tests.inputs.kcvt_refusals import bad_bits, bad_numbers, bad_scales, huge

generator = torch.Generator().manual_seed(7)
keys, values = torch.randn(2, 2, 9, 6, generator=generator)
kivi = dict(bits=2, group=2, residual=4)
kivi_cache = reference.kivi_prefill(keys, values, **kivi, scales=torch.float16)


def bad_whole(name: str, low: int = 0, *span: str) -> list[Refusal]:
    """Refusals of a number that is below `low` or none at all."""
    says = span or (f">= {low}",)
    return [Refusal(name, low - 1, ValueError, says[0]), Refusal(name, 2.0, TypeError, "integer")]


bad_stream = [
    *bad_numbers("keys", "values"),
    Refusal("keys", huge, ValueError, "torch.float16"),
    Refusal("values", huge, ValueError, "torch.float16"),
    Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
    Refusal("values", lambda v: v[:, :-1], ValueError, "shape"),
]
bad_prompt = [
    *bad_stream,
    Refusal("keys", lambda k: k[:0], ValueError, "of at least 1"),
]
bad_arrival = [
    *bad_stream,
    Refusal("cache", 3, TypeError, "Cache"),
]
bad_kivi = [
    *bad_bits,
    *bad_whole("group", 1),
    Refusal("group", 8, ValueError, "a multiple of group = 8"),
    Refusal("group", 4, ValueError, "divide the 6 channels"),
    *bad_whole("residual", 1),
    Refusal("residual", 5, ValueError, "multiple of group = 2"),
]

REFUSALS = dict(
    kivi_prefill=(
        dict(keys=keys, values=values, **kivi, scales=torch.float16),
        [
            *bad_prompt,
            *bad_kivi,
            *bad_scales,
        ],
    ),
    kivi_append=(dict(cache=kivi_cache, keys=keys, values=values), bad_arrival),
    kivi_read=(dict(cache=kivi_cache), [Refusal("cache", 3, TypeError, "KiviCache")]),
)  # fmt: skip
