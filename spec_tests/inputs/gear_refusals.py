"""What GEAR refuses."""

from typing import Any

import torch

import reference
from spec_tests.draw import Refusal
from spec_tests.inputs.kcvt_refusals import bad_bits, bad_numbers, bad_ratio, bad_scales, huge
from spec_tests.inputs.kivi_refusals import (
    bad_arrival,
    bad_prompt,
    bad_whole,
    keys,
    values,
)

gear: dict[str, Any] = dict(
    bits=4, outliers=0.3, rank=2, decoded_rank=1, block=4, fill=True, seed=0
)
gear_cache = reference.gear_prefill(keys, values, **gear, scales=torch.float16)
block = gear_cache.key_blocks[0]

bad_outliers = [
    Refusal("outliers", -0.1, ValueError, "[0, 1]"),
    Refusal("outliers", 1.5, ValueError, "[0, 1]"),
    Refusal("outliers", float("nan"), ValueError, "[0, 1]"),
    Refusal("outliers", "2%", TypeError, "a number"),
]
bad_seed = bad_whole("seed", 0, "[0, 4294967295]")
bad_rank = bad_whole("rank")
bad_by = [Refusal("by", "head", ValueError, "'channel', 'token'")]
REFUSALS = dict(
    outlier_mask=(dict(x=keys, ratio=0.3), [*bad_numbers("x"), *bad_ratio]),
    low_rank=(
        dict(x=keys, rank=2, rounds=3, seed=0),
        [
            *bad_numbers("x"),
            Refusal("x", lambda x: x[0, 0], ValueError, "2 axes"),
            *bad_rank,
            *bad_whole("rounds", 1),
            *bad_seed,
        ],
    ),
    gear_compress=(
        dict(x=keys, by="channel", bits=4, outliers=0.3, rank=2, fill=True, seed=0,
             scales=torch.float16),
        [
            *bad_numbers("x"),
            Refusal("x", huge, ValueError, "torch.float16"),
            Refusal("x", lambda x: x[:0], ValueError, "a head and a channel"),
            Refusal("x", lambda x: x[0], ValueError, "3 axes"),
            *bad_by,
            *bad_bits,
            *bad_outliers,
            *bad_rank,
            *bad_seed,
            *bad_scales,
        ],
    ),
    gear_reconstruct=(
        dict(block=block, exact_outliers=False), [Refusal("block", 3, TypeError, "GearBlock")]
    ),
    gear_prefill=(
        dict(keys=keys, values=values, **gear, scales=torch.float16),
        [
            *bad_prompt,
            *bad_bits,
            *bad_outliers,
            *bad_rank,
            *bad_whole("decoded_rank"),
            *bad_whole("block", 1),
            *bad_seed,
            *bad_scales,
        ],
    ),
    gear_append=(dict(cache=gear_cache, keys=keys, values=values), bad_arrival),
    gear_read=(
        dict(cache=gear_cache, exact_outliers=False),
        [Refusal("cache", 3, TypeError, "GearCache")],
    ),
)  # fmt: skip
