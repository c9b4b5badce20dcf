"""Measure what compressing a language model's KV cache costs: `python -m optimized`."""

# Imported first, since its error message says what to install if `transformers` is missing.
from optimized import models as models
