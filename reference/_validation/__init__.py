"""How calls are held to their signatures, and docstrings say what is admissible."""
