"""What the scorers that need queries and keys alone refuse."""

import torch
from torch import Tensor

from spec_tests.draw import Refusal, bad_importance, bad_mask
from spec_tests.inputs.attention import bad_entries, bad_keys, bad_queries, cache, queries


def gap(valid: Tensor) -> Tensor:
    """Return a row whose last token is padding."""
    bad = valid.clone()
    bad[..., -1] = False
    return bad


bad_valid = [*bad_mask("valid"), Refusal("valid", gap, ValueError, "on the left")]
valid = torch.tensor([True, True])


def bad_whole(argument: str, low: int, says: str) -> list[Refusal]:
    """Refusals of a number that must be an integer above a bound."""
    return [
        Refusal(argument, low - 1, ValueError, says),
        Refusal(argument, float(low), TypeError, "integer"),
    ]


REFUSALS = dict(
    knorm=(
        dict(keys=cache, valid=valid, shift=False),
        [
            *bad_entries("keys"),
            Refusal("keys", lambda keys: keys * 1e30, ValueError, "finite in torch.float32"),
            *bad_valid,
        ],
    ),
    h2o_mass=(
        dict(queries=queries, keys=cache, mass=torch.tensor([[0.5], [0.25]]), valid=valid),
        [
            *bad_queries,
            *bad_keys,
            *bad_importance("mass"),
            Refusal("mass", lambda mass: mass.repeat(1, 3), ValueError, "shape"),
            Refusal("mass", lambda mass: mass[:1], ValueError, "shape"),
            Refusal("mass", lambda mass: mass[0], ValueError, "at least 2 axes"),
            *bad_valid,
        ],
    ),
    h2o=(
        dict(mass=torch.tensor([[0.5, 0.25]]), keep=1, valid=valid, recent=0),
        [
            *bad_importance("mass"),
            Refusal("mass", lambda mass: mass[0], ValueError, "at least 2 axes"),
            *bad_whole("keep", 0, ">= 0"),
            *bad_valid,
            *bad_whole("recent", 0, "[0, 1]"),
            Refusal("recent", 2, ValueError, "[0, 1]"),
        ],
    ),
    snapkv=(
        dict(queries=queries, keys=cache, window=1, kernel=3, pooling="max", valid=valid),
        [
            *bad_queries,
            Refusal("queries", lambda q: q[..., :0, :], ValueError, "at least the last 1"),
            *bad_keys,
            *bad_whole("window", 1, ">= 1"),
            Refusal("window", 2, ValueError, "at least the last 2"),
            *bad_whole("kernel", 1, ">= 1"),
            Refusal("kernel", 4, ValueError, "odd"),
            Refusal("pooling", "mean", ValueError, "'average', 'max'"),
            *bad_valid,
        ],
    ),
    pyramidkv_budgets=(
        dict(keep=64, layers=4, tokens=torch.tensor([100, 50]), window=32, beta=20, exact=False),
        [
            *bad_whole("keep", 32, ">= 32"),
            *bad_whole("layers", 1, ">= 1"),
            Refusal("tokens", -1, ValueError, ">= 0"),
            Refusal("tokens", lambda n: -n, ValueError, ">= 0"),
            Refusal("tokens", lambda n: n.int(), TypeError, "int64"),
            Refusal("tokens", 9.0, TypeError, "integer"),
            *bad_whole("window", 0, ">= 0"),
            *bad_whole("beta", 1, ">= 1"),
        ],
    ),
    streaming_llm=(
        dict(keys=cache, sinks=1, valid=valid),
        [
            Refusal("keys", lambda keys: keys.long(), TypeError, "floating-point"),
            Refusal("keys", lambda keys: keys[0], ValueError, "at least 3 axes"),
            *bad_whole("sinks", 0, ">= 0"),
            *bad_valid,
        ],
    ),
)
