"""The clock, where `selection` looks for it."""

from optimized.study.clock import Clock as Clock
