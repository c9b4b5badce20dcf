"""The two readings of the papers: their text, and what the errata propose."""

READINGS = ("letter", "remedied")
