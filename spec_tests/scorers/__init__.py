"""Laws of the base scorers."""
