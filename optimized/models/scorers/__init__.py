"""Base scorers by name; each one has its own file."""

from inspect import isclass
from types import ModuleType
from typing import Any

import optimized
from optimized._dispatch import modules
from optimized.models import argument_checks as checks
from optimized.models._pretrained_model_type import PreTrainedModel
from optimized.models.scorer import Scorer

# a class in a file of this folder is found without being named anywhere
SCORERS: dict[str, type[Scorer]] = {
    found.name: found
    for module in modules(__name__)
    for found in vars(module).values()
    if isclass(found) and issubclass(found, Scorer) and found.__module__ == module.__name__
}
"""Every scorer of this folder, by name."""


def scorer(
    name: str, model: PreTrainedModel, kv: ModuleType = optimized, **settings: Any
) -> Scorer:
    """Return a scorer by its name.

    Args:
        name: one of `SCORERS`.
        model: the model that will read the prompt, attached.
        kv: the implementation, `reference` or `optimized`.
        settings: arguments of the scorer's functions, such as `window` or `sinks`;
            `seed` of `random`, `future` of `expected_attention`, `weights` of `fastkvzip`,
            `prompt` (token ids between the context and its repetition) of `kvzip`.

    Returns:
        The scorer: pass its `watch` to `prefill`, then call `finish`.

    Raises:
        ValueError: the name or a setting is unknown, or gates are missing.
    """
    checks.require_known_name("name", name, SCORERS)
    return SCORERS[name](model, kv, **settings)
