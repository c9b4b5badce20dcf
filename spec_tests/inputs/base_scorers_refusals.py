"""What the scorers that need queries and keys alone refuse."""

import torch
from torch import Tensor

from spec_tests.draw import Refusal
from spec_tests.inputs.attention import cache, queries


def gap(valid: Tensor) -> Tensor:
    """Return a row whose last token is padding."""
    bad = valid.clone()
    bad[..., -1] = False
    return bad


bad_padding = Refusal("valid", gap, ValueError, "on the left")
bad_attention = [
    Refusal("queries", lambda q: q[..., :0], ValueError, "at least 1"),
    Refusal("queries", lambda q: q.repeat(2, 1, 1)[:3], ValueError, "multiple of the 2"),
    Refusal("queries", lambda q: q.repeat(1, 3, 1), ValueError, "at most as many as the 2"),
]
valid = torch.tensor([True, True])

REFUSALS = dict(
    knorm=(
        dict(keys=cache, valid=valid, shift=False),
        [Refusal("keys", lambda k: k * 1e30, ValueError, "finite in torch.float32"), bad_padding],
    ),
    h2o_mass=(
        dict(queries=queries, keys=cache, mass=torch.tensor([[0.5], [0.25]]), valid=valid),
        [
            *bad_attention,
            Refusal("mass", lambda mass: mass.repeat(1, 3), ValueError, "at most the 2 tokens"),
            Refusal("mass", lambda mass: mass[:1], ValueError, "shape (2, 1)"),
            bad_padding,
        ],
    ),
    h2o=(
        dict(mass=torch.tensor([[0.5, 0.25]]), keep=1, valid=valid, recent=0),
        [bad_padding, Refusal("recent", 2, ValueError, "[0, 1]")],
    ),
    snapkv=(
        dict(queries=queries, keys=cache, window=1, kernel=3, pooling="max", valid=valid),
        [
            *bad_attention,
            Refusal("queries", lambda q: q[..., :0, :], ValueError, "at least the last 1"),
            Refusal("window", 2, ValueError, "at least the last 2"),
            Refusal("kernel", 4, ValueError, "odd"),
            bad_padding,
        ],
    ),
    pyramidkv_budgets=(
        dict(keep=64, layers=4, tokens=torch.tensor([100, 50]), window=32, beta=20, exact=False),
        [
            Refusal("keep", 31, ValueError, ">= 32"),
            Refusal("tokens", -1, ValueError, ">= 0"),
            Refusal("tokens", lambda n: n.int(), TypeError, "int64"),
            Refusal("tokens", 9.0, TypeError, "integer"),
        ],
    ),
    streaming_llm=(dict(keys=cache, sinks=1, valid=valid), [bad_padding]),
)
