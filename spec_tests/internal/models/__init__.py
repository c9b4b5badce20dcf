"""Caches inside language models of random weights: what is exact, what is refused."""
