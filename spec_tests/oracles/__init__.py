"""Slow, independent second opinions: exact arithmetic, exhaustive search."""
