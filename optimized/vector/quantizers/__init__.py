"""The quantisers' bodies: all rows, all heads at once."""
