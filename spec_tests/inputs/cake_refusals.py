"""What CAKE refuses."""

import torch
from torch import Tensor

from spec_tests.inputs.draw import Refusal, bad_importance, bad_mask
from spec_tests.inputs.kcvt_refusals import bad_numbers


def gap(mask: Tensor) -> Tensor:
    """Return a mask with a false after a true."""
    bad = mask.clone()
    bad[..., -1] = False
    return bad


bad_valid = [*bad_mask("valid"), Refusal("valid", gap, ValueError, "on the left")]
bad_attention = [
    *bad_numbers("queries", "keys"),
    Refusal("keys", lambda k: k[..., :1], ValueError, "shape"),
    Refusal("queries", lambda q: q[:3], ValueError, "multiple of the 2"),
    Refusal("queries", lambda q: torch.cat([q, q], -2), ValueError, "as the 6 tokens"),
    Refusal("queries", lambda q: q[:, :1], ValueError, "the last 2"),
    Refusal("window", 1, ValueError, ">= 2"),
    Refusal("window", 2.0, TypeError, "integer"),
    *bad_valid,
]


def bad_positive(name: str) -> list[Refusal]:
    """Refusals of a number that must be finite and above 0."""
    return [
        Refusal(name, bad, ValueError, "finite and > 0") for bad in (0.0, -1.0, float("inf"))
    ] + [Refusal(name, True, TypeError, "a number")]


def bad_from_zero(name: str) -> list[Refusal]:
    """Refusals of a number that must be finite and at least 0."""
    return [
        Refusal(name, bad, ValueError, "finite and >= 0")
        for bad in (-1.0, float("inf"), float("nan"))
    ] + [Refusal(name, True, TypeError, "a number")]


def bad_count(name: str, low: int = 0) -> list[Refusal]:
    """Refusals of an integer that must not be below `low`."""
    return [
        Refusal(name, low - 1, ValueError, f">= {low}"),
        Refusal(name, 2.0, TypeError, "integer"),
    ]


generator = torch.Generator().manual_seed(3)
queries, keys = (torch.randn(heads, 6, 2, generator=generator) for heads in (4, 2))
valid = torch.arange(6) > 0
seen = dict(queries=queries, keys=keys, window=2, valid=valid)
preferences = torch.tensor([[0.5, 1.0], [0.25, 2.0]])
lengths = torch.tensor([7, 9])
bad_budgets = [
    *bad_importance("preferences"),
    *bad_count("keep", 3),
    Refusal("tokens", -1, ValueError, ">= 0"),
    Refusal("tokens", 2.0, TypeError, "integer"),
    Refusal("tokens", lambda n: -n, ValueError, ">= 0"),
    Refusal("tokens", lambda n: n.float(), TypeError, "int64"),
    Refusal("tokens", lambda n: n[:1], ValueError, "shape (2,)"),
    *bad_count("window"),
]

REFUSALS = dict(
    cake=(
        seen | dict(gamma=200.0, kernel=5),
        [
            *bad_attention,
            *bad_from_zero("gamma"),
            Refusal("gamma", 1e300, ValueError, "where results are finite"),
            *bad_count("kernel", 1),
            Refusal("kernel", 4, ValueError, "odd"),
        ],
    ),
    cake_preference=(
        seen | dict(tau1=1.0, tau2=1.0),
        [
            *bad_attention,
            *bad_positive("tau1"),
            Refusal("tau1", 0.001, ValueError, "where results are finite"),
            *bad_positive("tau2"),
        ],
    ),
    cake_budgets=(
        dict(preferences=preferences, keep=5, tokens=lengths, window=3, exact=False),
        bad_budgets,
    ),
    cake_cascade=(
        dict(preferences=preferences, keep=5, tokens=lengths, window=3, exact=False),
        bad_budgets,
    ),
)
