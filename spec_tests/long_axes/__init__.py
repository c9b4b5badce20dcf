"""Calls with more than 512 tokens or 128 channels, which a kernel reads in several blocks."""
