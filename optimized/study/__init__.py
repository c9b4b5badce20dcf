"""What compressing the cache of a language model costs: the job of `python -m optimized`."""

# First of all, since it says what to install where `transformers` is missing.
from optimized import models as models
