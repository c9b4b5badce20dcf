"""Tests of this repository alone: its layers, its command and its caches for `transformers`."""
