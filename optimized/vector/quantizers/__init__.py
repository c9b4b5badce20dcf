"""The quantisers, over all rows and heads at once."""
