"""Check calls against signatures, and document which values are admissible."""
