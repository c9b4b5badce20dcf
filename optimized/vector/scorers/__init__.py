"""Scorers without loops over tokens, heads or queries."""
