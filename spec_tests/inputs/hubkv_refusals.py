"""What HubKV's head statistics, gate, refinement and budgets refuse."""

import torch

from spec_tests.draw import (
    INFINITE,
    NAN,
    Refusal,
    bad_importance,
    bad_mask,
    integers,
    longer,
)

scores = torch.tensor([[0.5, 0.25, 0.75, 0.0], [0.25, 0.25, 0.5, 1.0]])
mask = torch.tensor([[True, False, False, True], [False, False, True, True]])

bad_ratio = [
    Refusal("ratio", -0.1, ValueError, "[0, 1]"),
    Refusal("ratio", 1.1, ValueError, "[0, 1]"),
    Refusal("ratio", float("nan"), ValueError, "[0, 1]"),
    Refusal("ratio", True, TypeError, "a number"),
    Refusal("ratio", "0.5", TypeError, "a number"),
    Refusal("ratio", torch.tensor(0.5), TypeError, "a number"),
]
bad_power = [
    Refusal("power", 0.0, ValueError, "> 0"),
    Refusal("power", -1.0, ValueError, "> 0"),
    Refusal("power", None, TypeError, "a number"),
]
bad_epsilon = [
    Refusal("epsilon", -1e-6, ValueError, ">= 0"),
    Refusal("epsilon", False, TypeError, "a number"),
]
bad_tau = [
    Refusal("tau", -0.5, ValueError, ">= 0"),
    Refusal("tau", float("nan"), ValueError, ">= 0"),
]
bad_bounds = [
    Refusal("minimum", 0.0, ValueError, "finite and > 0"),
    Refusal("minimum", -1.0, ValueError, "finite and > 0"),
    Refusal("minimum", float("inf"), ValueError, "finite and > 0"),
    Refusal("maximum", 0.5, ValueError, ">= minimum"),
    Refusal("maximum", float("nan"), ValueError, ">= minimum"),
    Refusal("minimum", "0.8", TypeError, "a number"),
    Refusal("maximum", None, TypeError, "a number"),
]
no_head_axis = Refusal("scores", lambda tensor: tensor[0], ValueError, "at least 2 axes")
too_large = Refusal("scores", lambda scores: scores * 1e30, ValueError, "finite in torch.float32")
bad_layers = [*bad_importance(), no_head_axis, *bad_mask("protected"), *bad_epsilon]
bad_knobs = [*bad_tau, *bad_bounds]
knobs = dict(radius=1, gamma=0.5, tau=0.5, minimum=0.8, maximum=1.2, epsilon=1e-6)


def bad_finite(argument: str) -> list[Refusal]:
    """Refusals of a function whose scores may have either sign."""
    return [
        Refusal(argument, integers, TypeError, "floating-point"),
        Refusal(argument, NAN, ValueError, "finite"),
        Refusal(argument, INFINITE, ValueError, "finite"),
    ]


def bad_count(argument: str) -> list[Refusal]:
    """Refusals of a number of tokens."""
    return [
        Refusal(argument, -1, ValueError, ">= 0"),
        Refusal(argument, 2.5, TypeError, "integer"),
    ]


def far_apart(scores):
    """Return scores whose difference float16 does not reach."""
    return torch.stack([torch.full_like(scores, -60000), torch.full_like(scores, 61000)], -1).half()


REFUSALS = dict(
    selectivity=(
        dict(scores=scores, protected=mask, epsilon=1e-6),
        [*bad_importance(), *bad_mask("protected"), *bad_epsilon, too_large],
    ),
    head_weights=(
        dict(selectivity=torch.tensor([0.5, 1.0]), tau=0.5, minimum=0.8, maximum=1.2),
        [*bad_importance("selectivity"), *bad_tau, *bad_bounds],
    ),
    calibrate=(
        dict(scores=scores, weights=torch.tensor([0.5, 1.0])),
        [
            *bad_importance(),
            *bad_importance("weights"),
            Refusal("weights", longer, ValueError, "shape"),
        ],
    ),
    gate=(
        dict(scores=scores, corrected=scores / 2, ratio=0.5, power=2.0),
        [
            *bad_finite("scores"),
            *bad_finite("corrected"),
            Refusal("corrected", longer, ValueError, "shape"),
            *bad_ratio,
            *bad_power,
        ],
    ),
    protected_mask=(
        dict(tokens=10, sinks=4, recent=2),
        [*bad_count("tokens"), *bad_count("sinks"), *bad_count("recent")],
    ),
    hubkv_refine=(
        dict(scores=scores, ratio=0.5, protected=mask, power=2.0, **knobs),
        [*bad_layers, *bad_knobs, *bad_ratio, *bad_power, too_large],
    ),
    shift_scores=(
        dict(scores=scores),
        [
            *bad_finite("scores"),
            Refusal("scores", far_apart, ValueError, "finite in torch.float16"),
        ],
    ),
    ungated_refine=(
        dict(scores=scores, protected=mask, **knobs),
        [*bad_layers, *bad_knobs, too_large],
    ),
    head_budgets=(
        dict(scores=scores, keep=2, rule="entropy", protected=mask, epsilon=1e-6),
        [
            *bad_layers,
            Refusal("keep", 2.5, TypeError, "integer"),
            Refusal("keep", 5, ValueError, "[0, 4]"),
            Refusal("keep", 1, ValueError, ">= 2 to hold 4"),
            Refusal("rule", "largest", ValueError, "'waterfill'"),
            Refusal("rule", ["entropy"], ValueError, "'waterfill'"),
        ],
    ),
)
