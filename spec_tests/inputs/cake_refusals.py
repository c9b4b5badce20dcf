"""What CAKE refuses."""

import torch

from spec_tests.draw import Refusal
from spec_tests.inputs.base_scorers_refusals import bad_padding

bad_attention = [
    Refusal("queries", lambda q: q[..., :0], ValueError, "at least 1"),
    Refusal("queries", lambda q: q[:3], ValueError, "multiple of the 2"),
    Refusal("queries", lambda q: torch.cat([q, q], -2), ValueError, "as the 6 tokens"),
    Refusal("queries", lambda q: q[:, :1], ValueError, "the last 2"),
    Refusal("window", 1, ValueError, ">= 2"),
    bad_padding,
]
generator = torch.Generator().manual_seed(3)
queries, keys = (torch.randn(heads, 6, 2, generator=generator) for heads in (4, 2))
valid = torch.arange(6) > 0
seen = dict(queries=queries, keys=keys, window=2, valid=valid)
preferences = torch.tensor([[0.5, 1.0], [0.25, 2.0]])
lengths = torch.tensor([7, 9])
budgeted = dict(preferences=preferences, keep=5, tokens=lengths, window=3, exact=False)
bad_budgets = [
    Refusal("keep", 2, ValueError, ">= 3"),
    Refusal("tokens", -1, ValueError, ">= 0"),
    Refusal("tokens", 2.0, TypeError, "integer"),
    Refusal("tokens", lambda n: n[:1], ValueError, "shape (2,)"),
]

REFUSALS = dict(
    cake=(
        seen | dict(gamma=200.0, kernel=5),
        [
            *bad_attention,
            Refusal("gamma", 1e300, ValueError, "where results are finite"),
            Refusal("kernel", 4, ValueError, "odd"),
        ],
    ),
    cake_preference=(
        seen | dict(tau1=1.0, tau2=1.0),
        [*bad_attention, Refusal("tau1", 0.001, ValueError, "where results are finite")],
    ),
    cake_budgets=(budgeted, bad_budgets),
    cake_cascade=(budgeted, bad_budgets),
)
