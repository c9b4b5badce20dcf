"""The report of a run: a card for each failing function, with a minimal input for each cause."""
