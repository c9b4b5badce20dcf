"""Slow, independent second opinions, exact where that is possible."""
