"""What the sizes of quantised caches refuse."""

import torch

from spec_tests.draw import Refusal
from spec_tests.hex.size.draws import bad_prompts
from spec_tests.inputs.gear_refusals import bad_outliers, bad_rank, gear_cache
from spec_tests.inputs.kcvt_refusals import bad_bits, size
from spec_tests.inputs.kivi_refusals import bad_kivi, bad_whole, kivi

bad_sizes = [
    *size("tokens", 0),
    *size("kv_heads", 1),
    *size("width", 1),
    Refusal("dtype", torch.int8, ValueError, "torch.bfloat16"),
]

REFUSALS = dict(
    kivi_size=(
        dict(tokens=16, **kivi, kv_heads=2, width=6, dtype=torch.float16),
        [*bad_sizes, *bad_kivi],
    ),
    kivi_share=(
        dict(bits=2, group=64, residual=64, tokens=900),
        [
            *bad_bits,
            *bad_whole("group", 1),
            *bad_whole("residual"),
            *size("tokens", 1),
        ],
    ),
    quantizer_bytes=(
        dict(cache=gear_cache), [Refusal("cache", 3, TypeError, "a KiviCache or a GearCache")]
    ),
    gear_size=(
        dict(tokens=16, bits=4, outliers=0.3, rank=2, kv_heads=2, width=4, dtype=torch.float16),
        [*bad_sizes, *bad_bits, *bad_outliers, *bad_rank],
    ),
    quantizer_sizes=(
        dict(prompts=(900, 1304), kv_heads=2, width=64),
        [
            *bad_prompts,
            *size("kv_heads", 1),
            *size("width", 1),
            Refusal("width", 96, ValueError, "a multiple of 64"),
        ],
    ),
)  # fmt: skip
