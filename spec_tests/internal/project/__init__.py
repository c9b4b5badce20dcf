"""Tests of this repository: its docs, layers, mutants, and the suite itself."""
