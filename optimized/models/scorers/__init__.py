"""Base scorers by name, each in a file of its own."""

from types import ModuleType
from typing import Any

from transformers import PreTrainedModel

import optimized
from optimized.models import errors as refuse
from optimized.models.scorer import Scorer
from optimized.models.scorers.cake import Cake
from optimized.models.scorers.expected_attention import ExpectedAttention
from optimized.models.scorers.fastkvzip import FastKVzip
from optimized.models.scorers.h2o import H2O
from optimized.models.scorers.knorm import KNorm
from optimized.models.scorers.kvzip import KVzip
from optimized.models.scorers.pyramidkv import PyramidKV
from optimized.models.scorers.random import Random
from optimized.models.scorers.snapkv import SnapKV
from optimized.models.scorers.streaming_llm import StreamingLLM

ALL = (
    Random,
    StreamingLLM,
    KNorm,
    H2O,
    SnapKV,
    PyramidKV,
    Cake,
    ExpectedAttention,
    KVzip,
    FastKVzip,
)
SCORERS: dict[str, type[Scorer]] = {one.name: one for one in ALL}
"""What is known of each scorer stands with it."""


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
