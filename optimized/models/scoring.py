"""Base scorers by name."""

from types import ModuleType
from typing import Any

from transformers import PreTrainedModel

import optimized
from optimized.models import errors as refuse
from optimized.models.kvzip import KVzip
from optimized.models.observers import Cake, PyramidKV, SnapKV
from optimized.models.scorer import Scorer
from optimized.models.simple_scorers import (
    H2O,
    ExpectedAttention,
    FastKVzip,
    KNorm,
    Random,
    StreamingLLM,
)

SCORERS: dict[str, type[Scorer]] = {
    "random": Random,
    "streaming_llm": StreamingLLM,
    "knorm": KNorm,
    "h2o": H2O,
    "snapkv": SnapKV,
    "pyramidkv": PyramidKV,
    "cake": Cake,
    "expected_attention": ExpectedAttention,
    "kvzip": KVzip,
    "fastkvzip": FastKVzip,
}


def scorer(
    name: str, model: PreTrainedModel, kv: ModuleType = optimized, **settings: Any
) -> Scorer:
    """Prepare a scorer by its name.

    Args:
        name: one of `SCORERS`.
        model: the model that will read the prompt, attached.
        kv: the implementation, `reference` or `optimized`.
        settings: what the scorer's functions take beside tensors, such as `window` or `sinks`;
            `seed` of `random`, `future` of `expected_attention`, `weights` of `fastkvzip`,
            `prompt` (token ids between the context and its repetition) of `kvzip`.

    Returns:
        The scorer: hand its `watch` to `prefill`, then call `finish`.

    Raises:
        ValueError: the name or a setting is unknown, or gates are missing.
    """
    refuse.one_of("name", name, SCORERS)
    return SCORERS[name](model, kv, **settings)
