"""Compressed caches inside the language models of `transformers`."""

try:
    import transformers as transformers
except ImportError as missing:
    raise ImportError(
        "optimized.models needs transformers: pip install 'kvspec[models]'"
    ) from missing

from optimized.models.attach import attach, detach
from optimized.models.compress_prompt import compressed
from optimized.models.compressing import compressing
from optimized.models.decoding_cache import DecodingTransformersCache
from optimized.models.eviction_cache import EvictionCache
from optimized.models.hex import HexTransformersCache
from optimized.models.load import load
from optimized.models.prefill import Prefilled, Step, prefill, unrotated
from optimized.models.quantized import QuantizedTransformersCache
from optimized.models.quantized_eviction import QuantizedEvictionCache
from optimized.models.scorer import Scorer, Scores
from optimized.models.scorers import SCORERS, scorer
from optimized.models.systems import System, system_named

__all__ = [
    "load",
    "compressed",
    "compressing",
    "attach",
    "detach",
    "Step",
    "Prefilled",
    "prefill",
    "unrotated",
    "SCORERS",
    "Scorer",
    "Scores",
    "scorer",
    "System",
    "system_named",
    "EvictionCache",
    "HexTransformersCache",
    "DecodingTransformersCache",
    "QuantizedTransformersCache",
    "QuantizedEvictionCache",
]
