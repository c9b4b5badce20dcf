"""What HEX's heavy hitters, KCVT and bit packing refuse."""

import torch
from torch import Tensor

from spec_tests.draw import INFINITE, NAN, Refusal, bad_mask, integers


def one_head_less(tensor: Tensor) -> Tensor:
    """Return keys whose heads the query heads are no multiple of."""
    return tensor[..., :-1, :, :]


bad_bits = [
    Refusal("bits", 0, ValueError, "[1, 8]"),
    Refusal("bits", 9, ValueError, "[1, 8]"),
    Refusal("bits", 3.0, TypeError, "integer"),
]
bad_scales = [
    Refusal("scales", torch.bfloat16, ValueError, "torch.float16"),
    Refusal("scales", torch.int8, ValueError, "torch.float16"),
]
bad_value_group = [Refusal("value_group", "channel", ValueError, "'head'")]
bad_ratio = [
    Refusal("ratio", -0.1, ValueError, "[0, 1]"),
    Refusal("ratio", 1.5, ValueError, "[0, 1]"),
    Refusal("ratio", float("nan"), ValueError, "[0, 1]"),
]
bad_recent = [
    Refusal("recent", -1, ValueError, ">= 0"),
    Refusal("recent", 2.0, TypeError, "integer"),
]
bad_length = [
    Refusal("length", -1, ValueError, ">= 0"),
    Refusal("length", 2.0, TypeError, "integer"),
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


def huge(tensor: Tensor) -> Tensor:
    """Return numbers that float16 scales cannot hold."""
    return tensor * 2.0**20


def wider(tensor: Tensor) -> Tensor:
    """Return int64 in place of a narrower integer type."""
    return tensor.long()


def a_row_more(tensor: Tensor) -> Tensor:
    """Return a tensor of one row more."""
    return torch.cat([tensor, tensor[:1]])


x = torch.tensor([[0.5, 0.25, 0.75, 0.0], [-1.0, 1.0, 3.0, 2.0]])
cache = torch.stack([x, -x])
mask = x > 0.5
codes = torch.tensor([[0, 3, 7, 1], [2, 2, 5, 4]], dtype=torch.uint8)
bad_mass = [*bad_numbers("mass"), *bad_ratio, *bad_recent]

REFUSALS = dict(
    attention_mass=(
        dict(queries=cache, keys=cache, span=2, causal=True, normalize=False),
        [
            *bad_numbers("queries", "keys"),
            Refusal("keys", lambda k: k[..., :1], ValueError, "shape"),
            Refusal("queries", lambda q: torch.cat([q, q], -2), ValueError, "as the 2 tokens"),
            Refusal("queries", lambda q: torch.cat([q, q[:1]]), ValueError, "multiple of the 2"),
            Refusal("span", -1, ValueError, "[0, 2]"),
            Refusal("span", 3, ValueError, "[0, 2]"),
            Refusal("span", 1.0, TypeError, "integer"),
        ],
    ),
    heavy_hitter_mask=(dict(mass=x, ratio=0.5, recent=1, outside_recent=False), bad_mass),
    recent_mask=(
        dict(tokens=4, recent=2),
        [
            Refusal("tokens", -1, ValueError, ">= 0"),
            Refusal("tokens", 4.0, TypeError, "integer"),
            *bad_recent,
        ],
    ),
    h2o_mask=(dict(mass=x, ratio=0.5, recent=1, outside_recent=False), bad_mass),
    quantise=(
        dict(x=x, bits=3, kept=mask, scales=torch.float16),
        [
            *bad_numbers("x"),
            Refusal("x", huge, ValueError, "torch.float16"),
            *bad_bits,
            *bad_mask("kept"),
            *bad_scales,
        ],
    ),
    dequantise=(
        dict(codes=codes, steps=x[:, 1], minima=x[:, 0]),
        [
            Refusal("codes", wider, TypeError, "uint8"),
            Refusal("codes", lambda c: c[0, 0], ValueError, "1 axis"),
            Refusal("steps", integers, TypeError, "floating-point"),
            Refusal("steps", a_row_more, ValueError, "shape"),
            Refusal("minima", integers, TypeError, "floating-point"),
            Refusal("minima", a_row_more, ValueError, "shape"),
        ],
    ),
    kcvt=(
        dict(keys=cache, values=cache, bits=3, kept=mask.expand(2, 2, 4).clone(),
             value_group="token", scales=torch.float16),
        [
            *bad_numbers("keys", "values"),
            Refusal("keys", lambda k: k[:0], ValueError, "a head and a channel"),
            Refusal("keys", huge, ValueError, "torch.float16"),
            Refusal("values", lambda v: v.double(), TypeError, "torch.float32"),
            Refusal("values", huge, ValueError, "torch.float16"),
            *bad_bits,
            *bad_mask("kept"),
            *bad_value_group,
            *bad_scales,
        ],
    ),
    pack_bits=(
        dict(codes=codes, bits=3),
        [
            Refusal("codes", wider, TypeError, "uint8"),
            Refusal("codes", lambda c: c + 4, ValueError, "[0, 7]"),
            Refusal("codes", lambda c: c[0, 0], ValueError, "1 axis"),
            *bad_bits,
        ],
    ),
    unpack_bits=(
        dict(words=torch.tensor([[5], [-7]], dtype=torch.int32), bits=3, length=4),
        [
            Refusal("words", wider, TypeError, "int32"),
            Refusal("words", lambda w: torch.cat([w, w], -1), ValueError, "shape"),
            Refusal("words", lambda w: w[0, 0], ValueError, "1 axis"),
            *bad_bits,
            *bad_length,
        ],
    ),
)  # fmt: skip
